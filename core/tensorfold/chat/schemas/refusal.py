"""How what cannot be kept to is refused."""

from __future__ import annotations

from tensorfold.errors import Unsupported

__all__ = ["PARAM", "Empty", "refused", "refused_keyword", "step"]

PARAM = "response_format"
"""The field that refusals are about."""


class Empty(Exception):
    """No value fits: a branch that is left out, or a schema that is refused."""

    def __init__(self, keyword: str, at: str) -> None:
        super().__init__(keyword)
        self.keyword = keyword
        self.at = at


def refused(problem: str) -> Unsupported:
    """The refusal in these words."""
    return Unsupported(problem, param=PARAM, code="unsupported_schema")


def refused_keyword(keyword: str, at: str, why: str = "it cannot be enforced") -> Unsupported:
    """The refusal of a schema's keyword, by name and place (a JSON pointer to the schema that has it)."""
    return refused(f"{keyword} at {at} of the JSON schema is not served: {why}")


def step(at: str, *keys: str | int) -> str:
    """The pointer of what stands there under these keys."""
    return "/".join([at, *(str(key).replace("~", "~0").replace("/", "~1") for key in keys)])
