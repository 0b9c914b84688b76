"""A described drafter as `tensorfold info` prints it: alone, and beside the checkpoint that it drafts for."""

from __future__ import annotations

from typing import Any

from tensorfold.cli.amounts import as_rows, billions, size
from tensorfold.cli.describing_drafter import DrafterDescription
from tensorfold.cli.describing_files import Files

__all__ = ["drafter_lines", "drafter_object", "drafter_text", "stored_object"]


def drafter_object(told: DrafterDescription) -> dict[str, Any]:
    """As JSON has it, with the keys of other checkpoints where they say something; sizes are in bytes."""
    opened, files = told.opened, told.files
    drafter = opened.drafter
    return {
        "path": str(opened.checkpoint.path),
        "family": opened.name,
        "drafts_for": drafter.target,
        "parameters": told.parameters,
        "layers": drafter.layers,
        "hidden": drafter.hidden,
        "vocabulary": drafter.vocabulary,
        "dtype": told.dtype,
        # It has no states.
        "bytes_per_token": 0,
        "bytes_per_sequence": 0,
        "memory": {"weights": told.weights_bytes, "states": 0, "total": told.weights_bytes},
        "stored": stored_object(files),
        "left": {} if files is None else dict(files.left),
        "problem": None if files is None else files.problem,
    }


def stored_object(files: Files | None) -> dict[str, Any] | None:
    """How weights are stored; None where they are not there, or do not fit."""
    if files is None or files.weights is None:
        return None
    return {"bytes": files.weights.bytes, "tensors": dict(files.weights.kinds)}


def drafter_lines(name: str, told: DrafterDescription) -> list[str]:
    """Of a drafter alone."""
    opened, files = told.opened, told.files
    drafter = opened.drafter
    if files is None:
        weights = "not here: told from the config alone"
    else:
        weights = f"they do not fit: {files.problem}" if files.weights is None else files.weights.text
    left = () if files is None else files.left
    return as_rows(
        {
            "model": name,
            "from": str(opened.checkpoint.path),
            "family": f"{opened.name}: a drafter, which is no model to be served alone",
            "drafts for": f"{drafter.target}: `tensorfold serve MODEL --draft-model {opened.checkpoint.path}`",
            "parameters": billions(told.parameters),
            "layers": f"{drafter.layers} of hidden size {drafter.hidden}, without states: they read the model's",
            "memory": f"{size(told.weights_bytes)} of weights, in {told.dtype}",
            "weights": weights,
            **({"left": ", ".join(f"{module} ({count} tensors)" for module, count in left)} if left else {}),
        }
    )


def drafter_text(told: DrafterDescription) -> str:
    """In one line, beside what it drafts for."""
    drafter, files = told.opened.drafter, told.files
    text = (
        f"{told.opened.checkpoint.path}: {billions(told.parameters)} parameters in {drafter.layers} layers,"
        f" {size(told.weights_bytes)} of weights and no states"
    )
    return text if files is None or files.problem is None else f"{text}; they do not fit: {files.problem}"
