"""transformers as the measure of a family: a checkpoint that it writes, and its logits of one sequence.

reference = write_reference(lambda: GraniteForCausalLM(config), drawn_tokens(60), folder)
reference.check(GraniteFamily(), session)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tensorfold.checkpoint.folder import FolderCheckpoint
from tensorfold.contracts.backend import Session
from tensorfold.contracts.family import ModelFamily
from tensorfold.testing.ways import WAYS, Loaded

__all__ = ["Reference", "drawn_tokens", "reference_logits", "shake", "write_reference"]

TOLERANCE: Final = 1e-4
"""Of a logit in float32."""

Shaking: TypeAlias = Mapping[str, Callable[[Any], Any]]
"""New values of the tensors whose names end so, made of the old ones."""

_SHAKING: Final[Shaking] = MappingProxyType(
    {
        "A_log": lambda values: (values.new_empty(values.shape).uniform_() * 4 + 0.5).log(),
        "dt_bias": lambda values: values.new_empty(values.shape).normal_() * 0.5 - 1.0,
    }
)
"""Decays that are neither 0 nor 1."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A checkpoint on disk, and transformers' logits of one sequence."""

    path: Path
    tokens: tuple[int, ...]
    logits: NDArray[np.float32]
    """`[tokens, vocabulary]`."""

    @property
    def checkpoint(self) -> FolderCheckpoint:
        """The folder, opened anew: its config may have been written again."""
        return FolderCheckpoint(self.path)

    def loaded(self, family: ModelFamily, session: Session[Any]) -> Loaded:
        """The checkpoint on a session."""
        checkpoint = self.checkpoint
        return Loaded(family, checkpoint.config, checkpoint, session)

    def check(self, family: ModelFamily, session: Session[Any], tolerance: float = TOLERANCE) -> None:
        """Every position: at once, cached, beside another sequence, after rolled back drafts.

        Raises:
            AssertionError: logits differ by more, naming the way; or transformers' are all alike, and tell nothing.
        """
        loaded = self.loaded(family, session)
        assert self.logits.std() > 0.1, "weights that make all logits alike"
        for name, way in WAYS.items():
            worst = float(np.abs(way(loaded, self.tokens) - self.logits).max())
            assert worst < tolerance, f"{name}: {worst}"

    def check_about(self, family: ModelFamily, session: Session[Any]) -> None:
        """The same for a narrower type: on average, and two ways."""
        loaded = self.loaded(family, session)
        for name in ("at once", "with wrong drafts"):
            off = np.abs(WAYS[name](loaded, self.tokens) - self.logits).mean()
            assert off < 0.25 * self.logits.std(), name


def drawn_tokens(count: int, *, seed: int = 1, first: int = 3, last: int = 149) -> tuple[int, ...]:
    """Random ids from `first` to `last`."""
    return tuple(int(token) for token in np.random.default_rng(seed).integers(first, last + 1, count))


def shake(model: Any, shaking: Shaking = MappingProxyType({})) -> None:
    """Random values where transformers begins with constants, so that every weight matters: in all vectors, and where
    `shaking` says."""
    import torch

    rules = {**shaking, **_SHAKING}
    with torch.inference_mode():
        for name, values in model.state_dict().items():
            rule = next((each for end, each in rules.items() if name.endswith(end)), None)
            if rule is not None:
                values.copy_(rule(values))
            elif values.dim() == 1 and values.is_floating_point():
                values.add_(torch.randn(values.shape) * 0.1)


def reference_logits(model: Any, tokens: Iterable[int]) -> NDArray[np.float32]:
    """transformers' own, of the whole sequence at once, `[tokens, vocabulary]`."""
    import torch

    with torch.inference_mode():
        logits: NDArray[np.float32] = model(torch.tensor([list(tokens)])).logits[0].numpy()
    return logits


def write_reference(
    make: Callable[[], Any], tokens: tuple[int, ...], path: Path, shaking: Shaking = MappingProxyType({})
) -> Reference:
    """Make a model, shake it, save it into a folder, and run it; the same one each time."""
    import torch

    torch.manual_seed(0)  # pyright: ignore[reportUnknownMemberType]
    model = make().eval().float()
    shake(model, shaking)
    model.save_pretrained(path)
    return Reference(path, tokens, reference_logits(model, tokens))
