"""The server's own settings, each declared once: the field, its default, its flag, its variable and its help."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, cast

from tensorfold.config.sources import ConfigFile, Flags, Resolved, resolve, strangers
from tensorfold.config.values import SettingValue
from tensorfold.contracts.settings import PluginSettings, Setting, SettingsTable, SettingType
from tensorfold.errors import ConfigError

__all__ = ["CheckRows", "Drafts", "LogFormat", "LogLevel", "ServeConfig", "WeightsMode", "core_table", "load_config"]

LogFormat: TypeAlias = Literal["auto", "console", "json"]
Drafts: TypeAlias = Literal["auto", "off"]
CheckRows: TypeAlias = Literal["auto", "full", "off"]
WeightsMode: TypeAlias = Literal["auto", "int8", "int4", "exact"]
LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]

_ENDLESS = float("inf")
_KEY = "tensorfold"


@dataclass(frozen=True, slots=True)
class _Rule:
    """What a field's metadata says."""

    type: SettingType
    default: bool | float | str | tuple[str, ...] | None
    help: str
    flag: bool
    low: float
    high: float
    among: tuple[str, ...]
    secret: bool


def _value(
    type: SettingType,
    default: bool | float | str | tuple[str, ...] | None,
    help: str,
    *,
    flag: bool = True,
    low: float = -_ENDLESS,
    high: float = _ENDLESS,
    among: tuple[str, ...] = (),
    secret: bool = False,
) -> Any:
    """A field of `ServeConfig`, with the flag `--its-name` unless `flag` is False."""
    rule = _Rule(type, default, help, flag, low, high, among, secret)
    return field(default=default, metadata={_KEY: rule})


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeConfig:
    """Everything that `tensorfold serve` was told."""

    model: str | None = _value(
        "str", None, "A folder, a .gguf file, ORG/NAME, or a name that a plugin knows.", flag=False
    )
    served_name: str | None = _value("str", None, "The ID that the API reports; by default the model's own name.")
    alias: tuple[str, ...] = _value("strs", (), "A further ID that /v1/models lists.")

    host: str = _value("str", "127.0.0.1", "The address to listen on.")
    port: int = _value("int", 8080, "The port to listen on; 0: any free one.", low=0, high=65535)
    unix_socket: Path | None = _value("path", None, "A socket file to listen on, instead of host and port.")
    tls_cert: Path | None = _value("path", None, "A certificate chain in PEM, to serve https.")
    tls_key: Path | None = _value("path", None, "The certificate's key; by default in the same file.")
    cors_origin: tuple[str, ...] = _value(
        "strs", (), "An origin whose web pages may use the server (https://app.example), or *; by default none."
    )
    allowed_host: tuple[str, ...] = _value(
        "strs", (), "A name under which the server may be reached besides this machine's own, or *."
    )
    metrics_open: bool = _value("bool", False, "Serve /metrics and /v1/metrics without a key.")
    body_limit: int = _value("int", 32 * 1024 * 1024, "The longest request body, in bytes.", low=1024)
    keep_alive: float = _value("float", 10.0, "Seconds of silence after which a stream gets a comment.", low=0.1)
    grace: float = _value("float", 5.0, "Seconds that running replies get to end at a shutdown.", low=0)

    max_connections: int = _value(
        "int", 2048, "Open connections; one more gets a 503 and is closed.", flag=False, low=1
    )
    max_requests: int = _value(
        "int", 1024, "Requests in progress, over all routes; one more gets a 503.", flag=False, low=1
    )
    head_limit: int = _value("int", 64 * 1024, "The longest request line with headers, in bytes.", flag=False, low=1024)
    head_timeout: float = _value("float", 30.0, "Seconds to send request line and headers.", flag=False, low=0.1)
    body_timeout: float = _value("float", 60.0, "Seconds of silence while a body is sent.", flag=False, low=0.1)
    idle_timeout: int = _value("int", 75, "Seconds that a kept connection may be idle.", flag=False, low=1)
    write_timeout: float = _value(
        "float", 60.0, "Seconds that a client may read nothing of what is written to it.", flag=False, low=0.1
    )
    pending_limit: int = _value(
        "int", 4 * 1024 * 1024, "Characters of a stream that may wait for a slow reader.", flag=False, low=1024
    )

    dialect: tuple[str, ...] = _value("strs", (), "Serve this API, and only those given so.")
    plugin: tuple[str, ...] = _value(
        "strs", (), "A plugin: MODULE, FILE.py, KIND/NAME, or no:KIND/NAME to leave one out."
    )
    backend: str | None = _value("str", None, "What computes; by default what suits this machine best.")
    device: str | None = _value("str", None, "cpu, cuda, cuda:1, ...; by default the backend's best.")
    dtype: str | None = _value("str", None, "float32, bfloat16 or float16; by default what suits device and model.")
    weights: WeightsMode = _value(
        "str",
        "auto",
        "What becomes of matrices that the checkpoint stores as floats: int8, int4, or exact (all are computed with "
        "floats); auto: what suits the backend.",
        among=("auto", "int8", "int4", "exact"),
    )
    threads: int | None = _value(
        "int", None, "CPU threads; by default the cores that this process may use.", low=1, high=1024
    )

    context: int | None = _value("int", None, "Make the window smaller: tokens of prompt and reply together.", low=2)
    parallel: int | Literal["auto"] = _value(
        "auto", "auto", "How many replies run at once; auto: as many as fit, up to 8.", low=1, high=1024
    )
    state_memory: float | None = _value("float", None, "GiB for the states of sequences; by default planned.", low=0)
    prefill_chunk: int | None = _value(
        "int", None, "Prompt tokens in one step; by default what suits the device.", low=16, high=65536
    )
    prompt_cache_gib: float | None = _value(
        "float", None, "GiB of kept prompts; by default what nothing else needs. 0: none.", low=0
    )
    spill_gib: float = _value("float", 0.0, "GiB of kept prompts on disk, for a restarted server too; 0: none.", low=0)
    spill_dir: Path | None = _value("path", None, "The folder for them; by default one in the user's cache.")
    memory_reserve_gib: float | None = _value(
        "float", None, "GiB of memory that are left alone; by default a fifth of what is free.", flag=False, low=2
    )
    queue: int = _value("int", 64, "How many requests may wait before the next is refused.", low=0)
    scheduler: str | None = _value("str", None, "The scheduling policy, of those that are offered.")
    decode_share: float = _value(
        "float", 0.25, "The share of time that running replies get beside a prompt.", low=0, high=1
    )

    check_rows: CheckRows = _value(
        "str",
        "auto",
        "Check at the start, on the real weights, that replies cannot change each other: auto for a second at most, "
        "full to the end, or off.",
        among=("auto", "full", "off"),
    )
    drafts: Drafts = _value(
        "str", "auto", "Guess tokens ahead: auto where it pays, or off; replies are the same.", among=("auto", "off")
    )

    draft_model: str | None = _value(
        "str", None, "A drafter made for the model, where that is a checkpoint of its own; named as a model is."
    )

    max_tokens: int | None = _value("int", None, "The reply limit of requests that give none.", low=1)
    temperature: float | None = _value("float", None, "Of requests that give none; else the model's.", low=0, high=100)
    top_p: float | None = _value("float", None, "Of requests that give none; else the model's.", low=0, high=1)
    top_k: int | None = _value("int", None, "Of requests that give none; else the model's. 0: off.", low=0)
    min_p: float | None = _value("float", None, "Of requests that give none; else the model's.", low=0, high=1)
    reasoning_effort: str | None = _value(
        "str",
        None,
        "Of requests that give none: none, minimal, low, medium, high, xhigh or max; else the template's own.",
        among=("none", "minimal", "low", "medium", "high", "xhigh", "max"),
    )
    thinking_budget: int | None = _value(
        "int", None, "The most tokens inside reasoning, of requests that give none; else no limit.", low=1
    )
    template_vars_default: tuple[str, ...] = _value(
        "strs", (), "NAME=JSON for the chat template, where requests say nothing: preserve_thinking=false."
    )
    seed_salt: int = _value("int", 0, "Goes into the key of requests without a seed.", flag=False, secret=True)

    log_format: LogFormat = _value(
        "str", "auto", "auto, console or json; auto: console on a terminal.", among=("auto", "console", "json")
    )
    log_level: LogLevel = _value(
        "str", "info", "debug, info, warning or error.", among=("debug", "info", "warning", "error")
    )
    log_requests: Path | None = _value(
        "path", None, "A folder for one JSON file a request, with whole prompts and without keys; for bug reports."
    )

    settings: PluginSettings = field(default_factory=lambda: PluginSettings({}))
    """The plugins' own tables."""
    origins: Mapping[str, str] = field(default_factory=dict[str, str])
    """Who said each value, by its dotted name: `default`, a file's name, a variable or a flag."""
    warnings: tuple[str, ...] = ()
    """Sentences for the user, about variables that look misspelt."""

    def __post_init__(self) -> None:
        for name, rule in _rules().items():
            value = getattr(self, name)
            where = self._where(name)
            if rule.among and value is not None and value not in rule.among:
                raise ConfigError(f"{where} is {value!r}, and must be one of {', '.join(rule.among)}")
            if isinstance(value, int | float) and not rule.low <= value <= rule.high:
                raise ConfigError(f"{where} is {value}, and must be {_span(rule)}")

    def _where(self, name: str) -> str:
        """Who said a value, and which: a flag and a variable are names enough, a file is not."""
        origin = self.origins.get(name, "default")
        if origin == "default":
            return name
        return origin if origin.startswith(("--", "TENSORFOLD_")) else f"{origin}: {name}"


def _span(rule: _Rule) -> str:
    if rule.high == _ENDLESS:
        return f"at least {rule.low:g}"
    return f"between {rule.low:g} and {rule.high:g}"


def _rules() -> dict[str, _Rule]:
    return {each.name: cast("_Rule", each.metadata[_KEY]) for each in fields(ServeConfig) if _KEY in each.metadata}


def core_table() -> SettingsTable:
    """The server's own settings, as a table without a name: the top level of `tensorfold.toml`."""
    return SettingsTable(
        "",
        tuple(
            Setting(
                name=name,
                type=rule.type,
                help=rule.help,
                default=rule.default,
                flag=f"--{name.replace('_', '-')}" if rule.flag else None,
                env=f"TENSORFOLD_{name.upper()}",
                toml=not rule.secret,
                secret=rule.secret,
            )
            for name, rule in _rules().items()
        ),
    )


def load_config(
    tables: Sequence[SettingsTable],
    file: ConfigFile | None,
    environment: Mapping[str, str],
    flags: Flags,
    unloaded: Collection[str] = (),
) -> ServeConfig:
    """The whole configuration, from file, environment and flags.

    Args:
        tables: those of the loaded plugins; the core's own is added.
        unloaded: tables of plugins that are not loaded; the file may keep them.

    Raises:
        ConfigError: an unknown key, a value of another type or out of its bounds; says who gave it.
    """
    every = (core_table(), *tables)
    resolved = resolve(every, file, environment, flags, unloaded)
    core = {name: each.value for (table, name), each in resolved.items() if not table}
    for name in ("model", "draft_model"):
        if file is not None and resolved["", name].origin == file.path.name:
            core[name] = _model_beside(file, core[name])
    return ServeConfig(
        **cast("dict[str, Any]", core),
        settings=PluginSettings(
            MappingProxyType({table.name: MappingProxyType(_values(resolved, table.name)) for table in tables})
        ),
        origins=MappingProxyType({".".join(filter(None, key)): each.origin for key, each in resolved.items()}),
        warnings=tuple(strangers(every, environment)),
    )


def _values(resolved: Mapping[tuple[str, str], Resolved], table: str) -> dict[str, Any]:
    return {name: each.value for (owner, name), each in resolved.items() if owner == table}


def _model_beside(file: ConfigFile, model: SettingValue) -> SettingValue:
    """A model that the file names by a path which starts at its own folder; other names stay as they are."""
    beside = file.path.absolute().parent / Path(os.path.expanduser(str(model)))
    return str(beside) if beside.exists() else model
