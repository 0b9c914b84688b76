"""Wires a server: checkpoint, family, backend, weights, memory, runner, engine, application. Order is all it adds."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import platformdirs

from tensorfold.chat.prompt import PromptBuilder
from tensorfold.chat.thinking import ChatDefaults
from tensorfold.checkpoint.drafters import OpenDrafter, open_drafter
from tensorfold.checkpoint.open import OpenCheckpoint, claim_folder, open_checkpoint
from tensorfold.cli.backends import choose_backend
from tensorfold.cli.chat_defaults import chat_defaults
from tensorfold.cli.finding import find_model, model_name, stored_bytes
from tensorfold.cli.served import served
from tensorfold.compute.declaring import count_parameters
from tensorfold.compute.loading import check_weights, load_decoder, load_drafter
from tensorfold.compute.memory import MemoryPlan, plan_memory
from tensorfold.compute.runner import Runner
from tensorfold.compute.stored_weights import StoredWeights
from tensorfold.config import ServeConfig
from tensorfold.contracts.backend import Backend, BackendSettings, KeepsCodes, Session
from tensorfold.contracts.chat import Tokenizer
from tensorfold.contracts.engine import ModelInfo
from tensorfold.contracts.family import Decoder, Geometry
from tensorfold.contracts.policy import SchedulerPolicy
from tensorfold.contracts.tensors import TensorInfo
from tensorfold.engine.constraints import Constraints
from tensorfold.engine.copies import CopyDrafting
from tensorfold.engine.depth import MeasuredDepth
from tensorfold.engine.engine import LocalEngine
from tensorfold.engine.policies import DefaultPolicy
from tensorfold.engine.probe import PATIENCE, Independence, probe_rows
from tensorfold.engine.settings import EngineSettings
from tensorfold.errors import ConfigError
from tensorfold.ir import Sampling
from tensorfold.plugins import Catalog, Plugins

__all__ = ["Assembled", "Stages", "assemble"]

GIB = 1024**3


class Stages(Protocol):
    """Told how far the start is."""

    def stage(self, text: str) -> None:
        """What begins now."""
        ...

    def weights(self, done: int, total: int) -> None:
        """Stored bytes of weights read so far, and in all."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembled:
    """A model that is ready to be served."""

    engine: LocalEngine
    """Not started."""
    model: ModelInfo
    tokenizer: Tokenizer
    catalog: Catalog
    path: Path
    claim: str
    """Why this family runs this checkpoint."""
    device: str
    dtype: str
    weights: StoredWeights
    """What has been read."""
    keeps_codes: bool
    """Integer codes stay as they are stored; else they have been expanded to floats."""
    memory: MemoryPlan
    independence: Independence
    """What the trial of rows has shown."""
    drafter: Path | None
    """A checkpoint of its own that drafts."""


def assemble(config: ServeConfig, plugins: Plugins, stages: Stages) -> Assembled:
    """Everything that a server needs, in the order in which it can fail: what is cheap to refuse is refused first.

    Raises:
        PluginError, ConfigError, CheckpointError, BackendError: what was asked for cannot be.
    """
    chosen = _choose(config, plugins, stages)
    settings = BackendSettings(device=config.device, dtype=config.dtype, threads=config.threads, weights=config.weights)
    session = chosen.backend.open(settings)
    try:
        return _load(config, chosen, session, stages)
    except BaseException:
        session.close()
        raise


@dataclass(frozen=True, slots=True)
class _Chosen:
    """What is decided before a weight is read."""

    catalog: Catalog
    policy: SchedulerPolicy
    path: Path
    opened: OpenCheckpoint
    drafter: OpenDrafter | None
    geometry: Geometry
    backend: Backend
    chat_defaults: ChatDefaults


def _choose(config: ServeConfig, plugins: Plugins, stages: Stages) -> _Chosen:
    catalog = Catalog.of(plugins, config.settings)
    policy = _policy(config, catalog)
    defaults = chat_defaults(config)
    stages.stage("looking for the model")
    path = _find(config, plugins, catalog)
    stages.stage(f"opening {path.name}")
    opened = open_checkpoint(path, catalog.families)
    drafter = _drafter(config, opened, plugins)
    geometry = opened.family.geometry(opened.checkpoint.config)
    _check_context(config, geometry)
    backend, suitability = choose_backend(catalog.backends, config.backend)
    stages.stage(f"starting {backend.name} on {suitability.device}")
    return _Chosen(catalog, policy, path, opened, drafter, geometry, backend, defaults)


def _find(config: ServeConfig, plugins: Plugins, catalog: Catalog) -> Path:
    """Where the model is. What no family runs is refused by its configs, before its weights are downloaded."""
    configs = find_model(config.model, plugins, weights=False)
    if (configs / "config.json").exists():
        claim_folder(configs, catalog.families)
    return find_model(config.model, plugins)


def _drafter(config: ServeConfig, opened: OpenCheckpoint, plugins: Plugins) -> OpenDrafter | None:
    if config.draft_model is None:
        return None
    if config.drafts == "off":
        where = config.origins.get("draft_model", "draft_model")
        raise ConfigError(f"{where} is {config.draft_model}, and drafts are off: leave one of the two away")
    # As the model: one that does not draft for it is refused by its configs, before its weights are downloaded.
    configs = find_model(config.draft_model, plugins, weights=False)
    if (configs / "config.json").exists():
        open_drafter(configs, opened, weights=False)
    return open_drafter(find_model(config.draft_model, plugins), opened)


def _load(config: ServeConfig, chosen: _Chosen, session: Session[Any], stages: Stages) -> Assembled:
    checkpoint = chosen.opened.checkpoint
    read, decoder, geometry = _read_weights(chosen, session, stages)
    memory = _plan_memory(config, geometry, session)
    runner = Runner(
        decoder,
        session,
        geometry,
        lanes=memory.lanes,
        pages=memory.pages,
        identity=checkpoint.identity,
        chunk=config.prefill_chunk,
    )
    independence = _independence(config, runner, stages)
    stages.stage("building the tokenizer")
    tokenizer = checkpoint.tokenizer()
    engine = _engine(config, chosen, runner, tokenizer, memory, independence)
    return Assembled(
        engine=engine,
        model=_describe(config, chosen, engine.window, memory.lanes),
        tokenizer=tokenizer,
        catalog=chosen.catalog,
        path=chosen.path,
        claim=chosen.opened.claim.reason,
        device=session.device,
        dtype=session.dtype,
        weights=StoredWeights.of(read),
        keeps_codes=isinstance(session, KeepsCodes) and session.keeps_codes,
        memory=memory,
        independence=independence,
        drafter=None if chosen.drafter is None else chosen.drafter.checkpoint.path,
    )


def _read_weights(
    chosen: _Chosen, session: Session[Any], stages: Stages
) -> tuple[tuple[TensorInfo, ...], Decoder[Any], Geometry]:
    """What has been read, what it makes, and that model's shape: without a draft head where none is stored."""
    checkpoint, family = chosen.opened.checkpoint, chosen.opened.family
    stages.stage("reading weights")
    read = check_weights(family, checkpoint.config, checkpoint)
    decoder = load_decoder(family, checkpoint.config, checkpoint, session.packer, progress=stages.weights, read=read)
    geometry = chosen.geometry if decoder.draft is not None else chosen.geometry.without_draft()
    if chosen.drafter is not None:
        decoder = _with_drafter(chosen, chosen.drafter, decoder, session, stages)
        geometry = geometry.with_shared_draft()
    return read, decoder, geometry


def _with_drafter(
    chosen: _Chosen, drafter: OpenDrafter, decoder: Decoder[Any], session: Session[Any], stages: Stages
) -> Decoder[Any]:
    stages.stage("reading the drafter")
    config, source = chosen.opened.checkpoint.config, drafter.checkpoint
    return load_drafter(drafter.family, config, decoder, source.config, source, session.packer, progress=stages.weights)


def _plan_memory(config: ServeConfig, geometry: Geometry, session: Session[Any]) -> MemoryPlan:
    return plan_memory(
        geometry,
        session,
        lanes=None if config.parallel == "auto" else config.parallel,
        context=config.context,
        budget=_bytes(config.state_memory),
        chunk=config.prefill_chunk,
        copies=_bytes(config.prompt_cache_gib),
        reserve=_bytes(config.memory_reserve_gib),
    )


def _independence(config: ServeConfig, runner: Runner[Any], stages: Stages) -> Independence:
    """How many rows may share a step."""
    most = EngineSettings().rows
    if config.check_rows == "off":
        return Independence(most)
    stages.stage("checking rows")
    return probe_rows(runner, most, patience=None if config.check_rows == "full" else PATIENCE)


def _engine(
    config: ServeConfig,
    chosen: _Chosen,
    runner: Runner[Any],
    tokenizer: Tokenizer,
    memory: MemoryPlan,
    independence: Independence,
) -> LocalEngine:
    checkpoint = chosen.opened.checkpoint
    chat = chosen.opened.family.chat(checkpoint.config)
    prompts = PromptBuilder(
        tokenizer,
        checkpoint.templates,
        chat,
        vocabulary=runner.geometry.vocabulary,
        window=memory.window,
        defaults=chosen.chat_defaults,
    )
    gates = Constraints(
        tokenizer=tokenizer,
        chat=chat,
        geometry=runner.geometry,
        frame=prompts.call_frame,
        thinking_budget=config.thinking_budget,
    )
    return LocalEngine(
        runner,
        prompts=prompts,
        tokenizer=tokenizer,
        chat=chat,
        settings=_engine_settings(config, memory, independence),
        policy=chosen.policy,
        depth=MeasuredDepth(independence.costs),
        drafting=CopyDrafting() if config.drafts == "auto" else None,
        gates=gates,
    )


def _describe(config: ServeConfig, chosen: _Chosen, window: int, lanes: int) -> ModelInfo:
    geometry, checkpoint = chosen.geometry, chosen.opened.checkpoint
    templates = checkpoint.templates
    id = config.served_name or model_name(config.model, chosen.path)
    return ModelInfo(
        id=id,
        aliases=tuple(name for name in dict.fromkeys(config.alias) if name != id),
        created=int(time.time()),
        family=chosen.opened.family.name,
        backend=chosen.backend.name,
        window=window,
        trained_window=geometry.window,
        vocabulary=geometry.vocabulary,
        parameters=count_parameters(chosen.opened.family, checkpoint.config).main,
        capabilities=served(geometry),
        bos_token=templates.special_tokens.get("bos_token"),
        eos_token=templates.special_tokens.get("eos_token"),
        chat_template=templates.default,
        path=str(chosen.path),
        width=checkpoint.config.get(int, "hidden_size", geometry.hidden),
        weights_bytes=stored_bytes(chosen.path),
        lanes=lanes,
    )


def _check_context(config: ServeConfig, geometry: Geometry) -> None:
    if config.context is not None and config.context > geometry.window:
        where = config.origins.get("context", "context")
        raise ConfigError(f"{where} is {config.context}, and the checkpoint's window is {geometry.window} tokens")


def _policy(config: ServeConfig, catalog: Catalog) -> SchedulerPolicy:
    offered: dict[str, SchedulerPolicy] = {policy.name: policy for policy in catalog.policies}
    offered.setdefault(DefaultPolicy.name, DefaultPolicy(queue=config.queue))
    try:
        return offered[config.scheduler or DefaultPolicy.name]
    except KeyError:
        where = config.origins.get("scheduler", "scheduler")
        known = ", ".join(sorted(offered))
        raise ConfigError(f"{where} is {config.scheduler!r}, and the policies offered are {known}") from None


def _bytes(gibibytes: float | None) -> int | None:
    return None if gibibytes is None else int(gibibytes * GIB)


def _engine_settings(config: ServeConfig, memory: MemoryPlan, independence: Independence) -> EngineSettings:
    sampling = Sampling(temperature=config.temperature, top_p=config.top_p, top_k=config.top_k, min_p=config.min_p)
    settings = EngineSettings(
        window=config.context,
        sampling=sampling,
        seed_salt=config.seed_salt,
        decode_share=config.decode_share,
        rows=independence.rows,
        prefix_bytes=_bytes(config.prompt_cache_gib),
        prefix_copies=memory.copies,
        spill_folder=config.spill_dir or Path(platformdirs.user_cache_dir("tensorfold")) / "prefixes",
        spill_bytes=int(config.spill_gib * GIB),
    )
    # Whom the queue lets in is not turned away by those who read prompts and compile grammars.
    admitted = memory.lanes + config.queue
    settings = dataclasses.replace(
        settings, front_queue=settings.front_queue + admitted, compile_queue=settings.compile_queue + admitted
    )
    if config.drafts == "off":
        settings = dataclasses.replace(settings, head_depth=0)
    return settings if config.max_tokens is None else dataclasses.replace(settings, max_tokens=config.max_tokens)
