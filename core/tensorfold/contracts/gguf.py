"""How GGUF files of an architecture read as Hugging Face checkpoints: names, config keys, and what is to be undone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from tensorfold.contracts.model_config import ModelConfig
from tensorfold.errors import CheckpointDamaged

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["GgufArchitecture", "GgufFacts", "GgufOrder", "GgufTensor"]

GgufOrder: TypeAlias = "Callable[[ModelConfig, int], NDArray[np.intp]]"
"""From the config and a number of rows (or columns): where each of them, as Hugging Face has them, lies in the file."""


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """Where a GGUF tensor belongs, and what llama.cpp's converter did to it."""

    name: str
    """The Hugging Face name; `{i}` stands for the layer."""
    unpermute: str | None = None
    """The config key of a head count: the rows were permuted for llama.cpp's rotary order, head by head."""
    add: float = 0.0
    """Added to the stored values (-1 undoes llama.cpp's `1 + w` of zero-centred norms)."""
    log: bool = False
    """Stored as -exp(x)."""
    rows: GgufOrder | None = None
    """The rows are in another order."""
    columns: GgufOrder | None = None
    """The columns are."""
    conv: bool = False
    """`[C, taps]`: the axis of size 1 between them was taken away."""


class GgufFacts(Protocol):
    """A file's metadata and tensors, for rules that depend on them."""

    def get(self, key: str) -> Any:
        """A metadata value as JSON would have it, or None; `{arch}` stands for the architecture."""
        ...

    def names(self) -> Iterable[str]:
        """Every tensor, by its name in the file."""
        ...

    def values(self, name: str) -> NDArray[np.float32]:
        """A small tensor."""
        ...

    def damaged(self, name: str, problem: str) -> CheckpointDamaged:
        """The error to be raised when a tensor's values cannot be right."""
        ...


@dataclass(frozen=True, slots=True)
class GgufArchitecture:
    """How a GGUF of one `general.architecture` reads as a Hugging Face checkpoint of this family."""

    architecture: str
    config: Mapping[str, str]
    """Config key to metadata key; `{arch}` stands for the architecture. Missing metadata leaves the key out."""
    tensors: Mapping[str, GgufTensor]
    """GGUF tensor name to where it belongs; `{i}` stands for the layer. `.weight` and `.bias` are spelled out."""
    fixed: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Config keys that the metadata does not hold (`model_type`, `hidden_act`)."""
    ignored: frozenset[str] = frozenset()
    """GGUF tensors that carry nothing of their own (`rope_freqs.weight` where the config says the same)."""
    adapt: Callable[[GgufArchitecture, GgufFacts], GgufArchitecture] | None = None
    """The same rules, with what only this file tells (which layer is of which kind).

    Raises:
        CheckpointUnsupported: the file says what the family does not run; named.
    """
