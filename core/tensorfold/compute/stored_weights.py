"""What a checkpoint's weights are stored as, summed up for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from tensorfold.contracts.tensors import TensorInfo

__all__ = ["StoredWeights"]


@dataclass(frozen=True, slots=True)
class StoredWeights:
    """All tensors that a family reads."""

    bytes: int
    kinds: tuple[tuple[str, int], ...]
    """Each kind's own name and the number of its tensors, the kind with the most bytes first."""
    affine: int
    """Matrices of integer codes."""
    expanded: int
    """Matrices of codes that are floats when they are read."""

    @staticmethod
    def of(infos: Iterable[TensorInfo]) -> StoredWeights:
        """The sum."""
        bytes: Counter[str] = Counter()
        counts: Counter[str] = Counter()
        forms: Counter[str] = Counter()
        for info in infos:
            bytes[info.kind] += info.stored_bytes
            counts[info.kind] += 1
            forms[info.form] += 1
        kinds = tuple((kind, counts[kind]) for kind, _ in bytes.most_common())
        return StoredWeights(bytes.total(), kinds, forms["affine"], forms["expanded"])

    @property
    def text(self) -> str:
        """`3.1 GiB stored: 4-bit groups of 64 (196 tensors), BF16 (33)`."""
        first, *rest = (
            f"{kind} ({count}{' tensors' if not place else ''})" for place, (kind, count) in enumerate(self.kinds)
        )
        return f"{_size(self.bytes)} stored: {', '.join([first, *rest])}"


def _size(bytes: int) -> str:
    return f"{bytes / (1 << 30):.1f} GiB" if bytes >= 1 << 30 else f"{bytes / (1 << 20):,.1f} MiB"
