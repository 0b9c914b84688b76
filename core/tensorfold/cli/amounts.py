"""Sizes and counts as people read them."""

from __future__ import annotations

from fractions import Fraction

__all__ = ["as_rows", "billions", "size"]


def billions(count: int) -> str:
    """`26.90 billion`, and small counts to the last one."""
    return f"{count / 1e9:.2f} billion" if count >= 1e7 else f"{count:,}"


def size(bytes: int | Fraction) -> str:
    """`24.75 KiB`."""
    for unit, one in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if bytes >= one:
            return f"{float(bytes / one):.4g} {unit}"
    return f"{float(bytes):g} bytes"


def as_rows(rows: dict[str, str]) -> list[str]:
    """One line each, the texts under each other."""
    width = max(map(len, rows))
    return [f"  {key.ljust(width)}  {text}" for key, text in rows.items()]
