"""How families recognise their checkpoints: by model type, then by architecture, then by what a config looks like."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

from tensorfold.compute.nested import towers
from tensorfold.contracts.family import Claim
from tensorfold.contracts.model_config import ModelConfig
from tensorfold.errors import CheckpointUnsupported

__all__ = ["Marked", "Marks", "Recognizer"]


class Marked(Protocol):
    """One kind of checkpoint, by the names that configs give it."""

    @property
    def model_types(self) -> tuple[str, ...]:
        """The values of `model_type`: of a checkpoint with other towers, of the text model alone."""
        ...

    @property
    def architectures(self) -> tuple[str, ...]:
        """The classes that `architectures` names; what a config without a known model type is recognised by."""
        ...


@dataclass(frozen=True, slots=True)
class Marks:
    """A `Marked` for families of one kind, which have nothing else to say of it."""

    model_types: tuple[str, ...]
    architectures: tuple[str, ...] = ()


V = TypeVar("V", bound=Marked)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recognizer(Generic[V]):
    """The kinds of checkpoints of one family."""

    variants: tuple[V, ...]
    check: Callable[[ModelConfig, V], object]
    """Reads a config as one of a kind; refuses what is not run."""
    guess: Callable[[ModelConfig], tuple[V, Claim] | None] | None = None
    """Which kind a config that names neither type nor architecture looks like, if any: some files have no more. It claims
    with 10 by keys that most models have, with 20 by keys that few have."""

    def claim(self, config: ModelConfig) -> Claim | None:
        """The family's claim; it says which towers are left.

        Raises:
            CheckpointUnsupported: a checkpoint of this family with a feature that is not run.
        """
        found = self._found(config)
        if found is None:
            return None
        variant, claim = found
        self.check(config, variant)
        left = towers(config)
        return replace(claim, reason=f"{claim.reason}, its {' and '.join(left)} tower left") if left else claim

    def variant(self, config: ModelConfig) -> V:
        """Which kind it is.

        Raises:
            CheckpointUnsupported: none of this family's.
        """
        found = self._found(config)
        if found is None:
            raise CheckpointUnsupported(
                f"{config.where}: model_type is {config.model_type!r}, which is not of this family"
            )
        return found[0]

    def _found(self, config: ModelConfig) -> tuple[V, Claim] | None:
        for variant in self.variants:
            if config.model_type in variant.model_types:
                return variant, Claim(100, f"model_type {config.model_type}")
        for variant in self.variants:
            for architecture in variant.architectures:
                if architecture in config.architectures:
                    return variant, Claim(50, f"architecture {architecture}")
        # Families have the same keys and other arithmetic, so a config that names its kind is taken at its word.
        if self.guess is None or config.model_type or config.architectures:
            return None
        return self.guess(config)
