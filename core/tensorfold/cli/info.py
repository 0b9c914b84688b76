"""`tensorfold info`: what a checkpoint is and what it takes, told without reading a weight."""

from __future__ import annotations

import json
from typing import Any

import click

from tensorfold.cli.early import Launch
from tensorfold.errors import ConfigError

__all__ = ["command"]


def command(launch: Launch) -> click.Command:
    """The command."""

    @click.command(
        "info",
        help="Describe MODEL (a folder, a .gguf file or ORG/NAME) from its config alone: family and why, layers and "
        "states, parameters, memory, what of the checkpoint is read or left, and its defaults. A drafter is described "
        "as such.",
    )
    @click.argument("model", required=False)
    @click.option("--json", "as_json", is_flag=True, help="As a JSON object.")
    @click.option("--context", metavar="N", type=click.IntRange(1), help="Tell the memory of a sequence of N tokens.")
    @click.option("--draft-model", metavar="MODEL", help="Tell of this drafter as well, and whether it fits.")
    def info(model: str | None, as_json: bool, context: int | None, draft_model: str | None) -> None:
        told, lines = _told(launch, model, context, draft_model)
        click.echo(json.dumps(told, indent=2) if as_json else "\n".join(lines))

    return info


def _told(
    launch: Launch, model: str | None, context: int | None, draft_model: str | None
) -> tuple[dict[str, Any], list[str]]:
    """As JSON, and as lines."""
    # Imported here, since `tensorfold --help` must not pay for them.
    from tensorfold.checkpoint.drafters import find_drafter, open_drafter
    from tensorfold.checkpoint.open import open_checkpoint
    from tensorfold.cli.describing import describe
    from tensorfold.cli.describing_drafter import describe_drafter
    from tensorfold.cli.finding import find_model, model_name
    from tensorfold.cli.info_drafter import drafter_lines, drafter_object
    from tensorfold.cli.info_model import description_lines, description_object

    path = find_model(model, launch.plugins, weights=False)
    name = model_name(model, path)
    families = tuple(offered.value for offered in launch.plugins.families())
    if draft_model is None and (found := find_drafter(path, families)) is not None:
        if context is not None:
            raise ConfigError(f"--context is {context}, and a drafter has no states: it reads those of its model")
        alone = describe_drafter(found)
        return {"name": name, **drafter_object(alone)}, drafter_lines(name, alone)
    opened = open_checkpoint(path, families, weights=False)
    drafter = None
    if draft_model is not None:
        drafter = open_drafter(find_model(draft_model, launch.plugins, weights=False), opened, weights=False)
    described = describe(opened, context, drafter)
    if context is not None and context > described.geometry.window:
        raise ConfigError(f"--context is {context}, and the checkpoint's window is {described.geometry.window} tokens")
    return description_object(name, described), description_lines(name, described)
