"""What a model family declares and builds: written once over `Ops`, run by every backend."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from tensorfold.contracts.arrays import A
from tensorfold.contracts.chat import ChatFormat
from tensorfold.contracts.gguf import GgufArchitecture, GgufTensor
from tensorfold.contracts.model_config import ModelConfig
from tensorfold.contracts.ops import Ops
from tensorfold.contracts.states import StateSpec
from tensorfold.contracts.step import Step
from tensorfold.contracts.weights import Weights

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "CanPair",
    "Claim",
    "Decoder",
    "Drafter",
    "Geometry",
    "GgufArchitecture",
    "GgufTensor",
    "ModelFamily",
    "SamplingDefaults",
]


@dataclass(frozen=True, slots=True)
class SamplingDefaults:
    """What the checkpoint's `generation_config.json` recommends; None: it says nothing."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """A model's shape and promises, declared from its config alone; never probed."""

    vocabulary: int
    """Rows of the output head; ids from 0 to vocabulary - 1 exist."""
    hidden: int
    """Width of the rows that `Decoder.forward` gives; with several residual streams, of all of them."""
    layers: int
    """Decoder layers, for display."""
    window: int
    """The longest sequence that the checkpoint was made for."""
    states: Mapping[str, StateSpec]
    """Every state by name, those of the draft head included (group `draft`)."""
    stop_ids: frozenset[int]
    """End tokens, from config and generation config together."""
    sampling: SamplingDefaults = SamplingDefaults()
    capabilities: frozenset[str] = frozenset()
    """What else the checkpoint can do: `tools`, `thinking`, `vision`."""
    shared_draft: bool = False
    """The draft head has no states and reads the decoder's: however far it drafts, it stands at the last kept row."""

    def without_draft(self) -> Geometry:
        """The same model without its draft head, which its config tells of and many conversions drop."""
        kept = {name: spec for name, spec in self.states.items() if spec.group != "draft"}
        return replace(self, states=kept, shared_draft=False)

    def with_shared_draft(self) -> Geometry:
        """The same model with a drafter of its own checkpoint in place of its draft head."""
        return replace(self.without_draft(), shared_draft=True)


class Decoder(Protocol[A]):
    """A model over one backend's arrays."""

    @property
    def draft(self) -> Decoder[A] | None:
        """The checkpoint's own draft head: a decoder whose states have group `draft`, or None."""
        ...

    def prepare(self, step: Step[A]) -> Mapping[str, NDArray[Any]]:
        """Host work for a Step (n-gram hashes); the arrays are uploaded as `step.inputs`."""
        ...

    def forward(self, ops: Ops[A], step: Step[A]) -> A:
        """The hidden rows `[R, H]`, as `logits` and the draft head want them."""
        ...

    def logits(self, ops: Ops[A], hidden: A) -> A:
        """`[N, H]` to `[N, V]`."""
        ...


@dataclass(frozen=True, slots=True)
class Claim:
    """A family's answer to the question whether it runs a checkpoint."""

    score: int
    """Higher wins: 100 a known `model_type`, 50 a known architecture, 10 a guess from the config's shape."""
    reason: str
    """What was recognized, for the start-up block and `tensorfold info`."""


class ModelFamily(Protocol):
    """One family of models: what it claims, how it builds, how it converses."""

    @property
    def name(self) -> str:
        """Unique among families (`llama`)."""
        ...

    @property
    def gguf(self) -> tuple[GgufArchitecture, ...]:
        """The GGUF architectures that are read; empty: none."""
        ...

    def claim(self, config: ModelConfig) -> Claim | None:
        """Whether and how surely this family runs a checkpoint with this config, or None.

        Raises:
            CheckpointUnsupported: the checkpoint is of this family and has a feature that is not run; named.
        """
        ...

    def geometry(self, config: ModelConfig) -> Geometry:
        """The model's shape, from the config alone."""
        ...

    def build(self, config: ModelConfig, weights: Weights[A]) -> Decoder[A]:
        """The decoder, over handles that `weights` packs."""
        ...

    def chat(self, config: ModelConfig) -> ChatFormat:
        """How this checkpoint converses."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafter:
    """A drafter in a checkpoint of its own, as its config tells of it."""

    target: str
    """The models that it drafts for, for people: `a Gemma 4 of hidden size 2560`."""
    layers: int
    hidden: int
    vocabulary: int


@runtime_checkable
class CanPair(Protocol):
    """A family some of whose models have a drafter in a checkpoint of its own, which reads the decoder's states."""

    def drafter(self, config: ModelConfig) -> Drafter | None:
        """What a checkpoint with this config drafts for, or None: it is no drafter of this family's.

        Raises:
            CheckpointUnsupported: it is one, with a feature that is not run; named.
        """
        ...

    def declare_drafter(self, drafter: ModelConfig, weights: Weights[A]) -> None:
        """Ask `weights` for all that `build_drafter` asks them for, whatever the target is."""
        ...

    def check_drafter(self, config: ModelConfig, drafter: ModelConfig) -> None:
        """Whether the checkpoint of the second config drafts for that of the first.

        Raises:
            CheckpointUnsupported: it does not; names the key that says so, and what it would have to be.
        """
        ...

    def build_drafter(
        self, config: ModelConfig, decoder: Decoder[A], drafter: ModelConfig, weights: Weights[A]
    ) -> Decoder[A]:
        """The same decoder with this drafter as its draft head, over handles that `weights` packs.

        Row p of the head takes the decoder's hidden row p and token p + 1, and sees the decoder's states up to p. A
        row that it drafts further takes its own last row, and stands at p again.
        """
        ...
