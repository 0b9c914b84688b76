"""A described checkpoint as `tensorfold info` prints it: as a JSON object, and as lines for people."""

from __future__ import annotations

from typing import Any

from tensorfold.cli.amounts import as_rows, billions, size
from tensorfold.cli.describing import Description
from tensorfold.cli.info_drafter import drafter_object, drafter_text, stored_object
from tensorfold.cli.served import served

__all__ = ["description_lines", "description_object"]


def description_object(name: str, told: Description) -> dict[str, Any]:
    """The description as JSON has it; sizes are in bytes."""
    geometry, opened, files = told.geometry, told.opened, told.files
    sampling = geometry.sampling
    drafter_bytes = 0 if told.drafter is None else told.drafter.weights_bytes
    return {
        "name": name,
        "path": str(opened.checkpoint.path),
        "family": opened.family.name,
        "reason": opened.claim.reason,
        "claims": [
            {"family": family, "score": claim.score, "reason": claim.reason}
            for family, claim in ((opened.family.name, opened.claim), *opened.others)
        ],
        "parameters": told.parameters.main,
        "draft_parameters": told.parameters.draft,
        "layers": geometry.layers,
        "states": dict(told.states),
        "vocabulary": geometry.vocabulary,
        "window": geometry.window,
        "dtype": told.dtype,
        "bytes_per_token": _number(told.sizes.token),
        "bytes_per_sequence": told.sizes.sequence,
        "draft_bytes_per_token": _number(told.draft_sizes.token),
        "memory": {
            "context": told.context,
            "weights": told.weights_bytes,
            "states": told.states_bytes,
            "drafter": drafter_bytes,
            "total": told.weights_bytes + told.states_bytes + drafter_bytes,
        },
        "stored": stored_object(files),
        "left": [*told.towers] if files is None else dict(files.left),
        "problem": None if files is None else files.problem,
        "stop_ids": sorted(geometry.stop_ids),
        "capabilities": sorted(served(geometry)),
        "sampling": {
            key: getattr(sampling, key) for key in ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
        },
        "drafter": None if told.drafter is None else drafter_object(told.drafter),
    }


def _number(value: Any) -> int | float:
    return int(value) if value.denominator == 1 else float(value)


def description_lines(name: str, told: Description) -> list[str]:
    geometry, opened, parameters = told.geometry, told.opened, told.parameters
    rows: dict[str, str] = {
        "model": name,
        "from": str(opened.checkpoint.path),
        "family": f"{opened.family.name}: {opened.claim.reason} (score {opened.claim.score})",
    }
    if opened.others:
        rows["also"] = "; ".join(f"{family}: {claim.reason} (score {claim.score})" for family, claim in opened.others)
    rows |= {
        "parameters": billions(parameters.main)
        + (f", and {billions(parameters.draft)} of the draft head" if parameters.draft else ""),
        "layers": f"{geometry.layers}, with {', '.join(f'{count} {kind}' for kind, count in told.states) or 'no states'}",
        "window": f"{geometry.window} tokens, a vocabulary of {geometry.vocabulary}",
        "cache": f"{size(told.sizes.token)} a token, {size(told.sizes.sequence)} a sequence beside it, in {told.dtype}",
        "memory": f"{size(told.weights_bytes)} of weights, {size(told.states_bytes)} of states"
        f" for a sequence of {told.context} tokens",
        **_files(told),
        **({} if told.drafter is None else {"drafter": drafter_text(told.drafter)}),
        "sampling": _sampling(told) or "the checkpoint recommends nothing",
        "ends with": ", ".join(map(str, sorted(geometry.stop_ids))) or "no token",
        "can": ", ".join(["text", *sorted(served(geometry))]),
    }
    return as_rows(rows)


def _files(told: Description) -> dict[str, str]:
    """What is stored, read and left."""
    draft = "the text model and its draft head (MTP)" if told.parameters.draft else "the text model"
    if told.files is None:
        return {
            "weights": "not here: told from the config alone",
            "read": draft,
            "left": ", ".join(f"the {tower} tower" for tower in told.towers) or "nothing",
        }
    if told.files.weights is None:
        return {"weights": f"they do not fit: {told.files.problem}"}
    left = (f"{module} ({count} tensors)" for module, count in told.files.left)
    return {"weights": told.files.weights.text, "read": draft, "left": ", ".join(left) or "nothing"}


def _sampling(told: Description) -> str:
    sampling = told.geometry.sampling
    values = {
        key.replace("_", " "): getattr(sampling, key)
        for key in ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
    }
    return ", ".join(f"{key} {value:g}" for key, value in values.items() if value is not None)
