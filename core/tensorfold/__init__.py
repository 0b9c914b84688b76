"""tensorfold: an inference server whose models, dialects, backends and auth are plugins."""

import pluggy

__all__ = ["hookimpl"]

hookimpl = pluggy.HookimplMarker("tensorfold")
"""Marks a function of a plugin module as the answer to one of the questions in `tensorfold.hookspecs`."""
