"""Which of the two shapes a body of `/v1/decisions` has. Only its keys tell; no valid body of one is one of the other."""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

import msgspec

from tensorfold.errors import DecodeError
from tensorfold.wire import decode_value

__all__ = ["Shape", "ShapeReader"]

Shape: TypeAlias = Literal["keyed", "ordered"]
"""SGLang's, whose answers have the questions' ids as keys; OpenAI's, whose answers stand in their order."""

_QUESTION: dict[Shape, frozenset[str]] = {
    "keyed": frozenset({"id", "question", "options", "yes", "no"}),
    "ordered": frozenset({"instructions", "choices", "name"}),
}
_TYPE: dict[str, Shape] = {"yes_no": "keyed", "predicate": "ordered"}
_TOP: dict[Shape, frozenset[str]] = {
    "keyed": frozenset(
        {"temperature", "chat_template_kwargs", "prompt_format_version", "return_prompt_token_ids", "images"}
    ),
    "ordered": frozenset({"prompt_cache_key", "prompt_cache_options", "safety_identifier"}),
}
_MAP = re.compile(rb"\s*\{")


class ShapeReader:
    """Looks at a body that `check_body` has passed."""

    def __init__(self) -> None:
        self._top = msgspec.json.Decoder(dict[str, msgspec.Raw])
        self._questions = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])

    def shape(self, body: bytes) -> Shape:
        """
        Raises:
            DecodeError: the body mixes both, has neither's keys, or is one for another route.
        """
        top = decode_value(self._top, body)
        questions = top.get("questions", msgspec.Raw(b"[]"))
        if "state" in top or _MAP.match(bytes(questions)):
            raise DecodeError("state and a map of questions belong to /v1/systemone", param="questions")
        told: set[Shape] = set()
        for question in decode_value(self._questions, questions, "questions"):
            told |= {shape for shape, keys in _QUESTION.items() if keys & question.keys()}
            if shape := _TYPE.get(bytes(question.get("type", msgspec.Raw(b""))).decode(errors="replace").strip('"')):
                told.add(shape)
        if not told:
            told = {shape for shape, keys in _TOP.items() if keys & top.keys()}
        match sorted(told):
            case [shape]:
                return shape
            case []:
                raise DecodeError(
                    "questions holds neither questions with id and question nor questions with instructions",
                    param="questions",
                )
            case _:
                raise DecodeError(
                    "the body mixes two shapes: questions have id and question, or instructions and name",
                    param="questions",
                )
