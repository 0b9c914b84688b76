"""`tensorfold info`: what a checkpoint is and what it takes, told without reading a weight."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from tensorfold.cli.early import Launch
from tensorfold.cli.served import served
from tensorfold.errors import ConfigError

if TYPE_CHECKING:
    from tensorfold.cli.describing import Description

__all__ = ["command"]


def command(launch: Launch) -> click.Command:
    """The command."""

    @click.command(
        "info",
        help="Describe MODEL (a folder, a .gguf file or ORG/NAME) from its config alone: family and why, layers and "
        "states, parameters, memory, what of the checkpoint is read or left, and its defaults.",
    )
    @click.argument("model", required=False)
    @click.option("--json", "as_json", is_flag=True, help="As a JSON object.")
    @click.option("--context", metavar="N", type=click.IntRange(1), help="Tell the memory of a sequence of N tokens.")
    def info(model: str | None, as_json: bool, context: int | None) -> None:
        # Imported here, since `tensorfold --help` must not pay for them.
        from tensorfold.checkpoint.open import open_checkpoint
        from tensorfold.cli.describing import describe
        from tensorfold.cli.finding import find_model, model_name

        path = find_model(model, launch.plugins, weights=False)
        families = tuple(offered.value for offered in launch.plugins.families())
        described = describe(open_checkpoint(path, families, weights=False), context)
        if context is not None and context > described.geometry.window:
            raise ConfigError(
                f"--context is {context}, and the checkpoint's window is {described.geometry.window} tokens"
            )
        name = model_name(model, path)
        click.echo(json.dumps(_object(name, described), indent=2) if as_json else "\n".join(_lines(name, described)))

    return info


def _object(name: str, told: Description) -> dict[str, Any]:
    """The description as JSON has it; sizes are in bytes."""
    geometry, opened, files = told.geometry, told.opened, told.files
    sampling = geometry.sampling
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
            "total": told.weights_bytes + told.states_bytes,
        },
        "stored": None
        if files is None or files.weights is None
        else {"bytes": files.weights.bytes, "tensors": dict(files.weights.kinds)},
        "left": [*told.towers] if files is None else dict(files.left),
        "problem": None if files is None else files.problem,
        "stop_ids": sorted(geometry.stop_ids),
        "capabilities": sorted(served(geometry)),
        "sampling": {
            key: getattr(sampling, key) for key in ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
        },
    }


def _number(value: Any) -> int | float:
    return int(value) if value.denominator == 1 else float(value)


def _lines(name: str, told: Description) -> list[str]:
    geometry, opened, parameters = told.geometry, told.opened, told.parameters
    rows: dict[str, str] = {
        "model": name,
        "from": str(opened.checkpoint.path),
        "family": f"{opened.family.name}: {opened.claim.reason} (score {opened.claim.score})",
    }
    if opened.others:
        rows["also"] = "; ".join(f"{family}: {claim.reason} (score {claim.score})" for family, claim in opened.others)
    rows |= {
        "parameters": _billions(parameters.main)
        + (f", and {_billions(parameters.draft)} of the draft head" if parameters.draft else ""),
        "layers": f"{geometry.layers}, with {', '.join(f'{count} {kind}' for kind, count in told.states) or 'no states'}",
        "window": f"{geometry.window} tokens, a vocabulary of {geometry.vocabulary}",
        "cache": f"{_size(told.sizes.token)} a token, {_size(told.sizes.sequence)} a sequence beside it, in {told.dtype}",
        "memory": f"{_size(told.weights_bytes)} of weights, {_size(told.states_bytes)} of states"
        f" for a sequence of {told.context} tokens",
        **_files(told),
        "sampling": _sampling(told) or "the checkpoint recommends nothing",
        "ends with": ", ".join(map(str, sorted(geometry.stop_ids))) or "no token",
        "can": ", ".join(["text", *sorted(served(geometry))]),
    }
    width = max(map(len, rows))
    return [f"  {key.ljust(width)}  {text}" for key, text in rows.items()]


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


def _billions(count: int) -> str:
    return f"{count / 1e9:.2f} billion" if count >= 1e7 else f"{count:,}"


def _size(bytes: Any) -> str:
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if bytes >= size:
            return f"{float(bytes / size):.4g} {unit}"
    return f"{float(bytes):g} bytes"
