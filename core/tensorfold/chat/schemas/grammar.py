"""Any form of a reply, ready for the grammar library."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from tensorfold.chat.schemas.limits import MAX_CHOICES, MAX_GRAMMAR
from tensorfold.chat.schemas.normalise import normalise
from tensorfold.chat.schemas.patterns import PatternRefused, read_pattern
from tensorfold.chat.schemas.refusal import refused
from tensorfold.chat.schemas.spell import literal, whole
from tensorfold.ir import JSON, Choice, Ebnf, Grammar, JsonObject, JsonSchema, Regex

__all__ = ["JsonForm", "TextForm", "filled", "ready"]

_COUNT = re.compile(r"\{\s*(\d*)\s*(?:,\s*(\d*)\s*)?\}")
_MAX_COUNT = 10_000
_MAX_PRODUCT = 1_000_000


@dataclass(frozen=True, slots=True)
class JsonForm:
    """A JSON value of this schema, in which some texts are stand-ins for grammars of their own."""

    schema: JSON
    rules: Mapping[str, str] = field(default_factory=dict[str, str])
    """Stand-in to the grammar of the inside of a JSON string."""


@dataclass(frozen=True, slots=True)
class TextForm:
    """A text that rule `root` of this grammar derives."""

    grammar: str


def ready(grammar: Grammar) -> JsonForm | TextForm:
    """What the grammar library is given.

    Raises:
        Unsupported: it is too large, or something of it cannot be kept to.
    """
    match grammar:
        case JsonSchema(schema):
            found = normalise(schema)
            return JsonForm(found.schema, found.rules)
        case JsonObject():
            return JsonForm({"type": "object"})
        case Regex(pattern):
            try:
                return TextForm(f"root ::= {whole(read_pattern(pattern), json=False)}")
            except PatternRefused as refusal:
                raise refused(f"the regular expression {pattern[:200]!r} is not served: {refusal}") from None
        case Choice(texts):
            _check_choice(texts)
            return TextForm("root ::= " + " | ".join(map(literal, dict.fromkeys(texts))))
        case Ebnf(text):
            _check_ebnf(text)
            return TextForm(text)


def _check_choice(texts: tuple[str, ...]) -> None:
    if len(texts) > MAX_CHOICES or sum(map(len, texts)) > MAX_GRAMMAR:
        raise refused(f"a choice may have {MAX_CHOICES} texts and {MAX_GRAMMAR} characters")
    if not any(texts):
        raise refused("a choice needs a text that is not empty")


def _check_ebnf(text: str) -> None:
    if len(text) > MAX_GRAMMAR:
        raise refused(f"the grammar has {len(text)} characters, and at most {MAX_GRAMMAR} are served")
    product = 1
    for least, most in _COUNT.findall(text):
        largest = max(int(each[:12]) for each in (least, most, "1") if each)
        if largest > _MAX_COUNT:
            raise refused(f"the grammar counts to {largest}, and at most to {_MAX_COUNT} is served")
        product *= max(largest, 1)
    if product > _MAX_PRODUCT:
        raise refused("the grammar counts to too much when all its repetitions are multiplied")


def filled(text: str, rules: Mapping[str, str]) -> str:
    """The library's grammar of a schema, with the stand-ins replaced by rules of their own."""
    for name in rules:
        # As a text, and as the pattern of a name.
        text = text.replace(f'"\\"{name}\\""', f'"\\"" {name} "\\""').replace(
            f'Regex("^{name}$", json_string=true)', name
        )
    return "\n".join([text, *(f"{name} ::= {rule}" for name, rule in rules.items())])
