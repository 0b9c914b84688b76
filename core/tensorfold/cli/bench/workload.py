"""What is sent: prompts of a given length, all different, the same for every server and every run."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tensorfold.ir import JSON

__all__ = ["Endpoint", "Workload"]

Endpoint: TypeAlias = Literal["chat", "completions"]

# One token each in the vocabularies of common models, so that a length in words is nearly one in tokens.
_TEXT = (
    "time year people way day man thing woman life child world school state family student group country problem hand "
    "part place case week company system program question work government number night point home water room mother "
    "area money story fact month lot right study book eye job word business issue side kind head house service friend "
    "father power hour game line end member law car city community name president team minute idea body information"
)
_WORDS = _TEXT.split()


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The requests of one measurement."""

    endpoint: Endpoint = "completions"
    requests: int = 16
    prompt_tokens: int = 128
    reply_tokens: int = 64
    concurrency: int | None = None
    """Closed loop: so many requests at once, the next when one ends; None: one."""
    rate: float | None = None
    """Open loop instead: requests a second on average, at random moments, whether earlier ones have ended or not."""
    temperature: float = 0.0
    seed: int = 0

    @property
    def path(self) -> str:
        """The route."""
        return "/v1/chat/completions" if self.endpoint == "chat" else "/v1/completions"

    def body(self, model: str, index: int, words: int) -> Mapping[str, JSON]:
        """Request number `index`, with a prompt of so many words."""
        text = self.text(index, words)
        body: dict[str, JSON] = {
            "model": model,
            "max_tokens": self.reply_tokens,
            "temperature": self.temperature,
            "seed": self.seed + index,
            # Not every server knows this; those that do not may end a reply early, and the figures count what came.
            "ignore_eos": True,
        }
        if self.endpoint == "chat":
            body["messages"] = [{"role": "user", "content": text}]
        else:
            body["prompt"] = text
        return body

    def text(self, index: int, words: int) -> str:
        """A prompt that begins differently from every other, so that kept prefixes help nobody."""
        chosen = random.Random(f"{self.seed}/{index}")
        return " ".join(chosen.choice(_WORDS) for _ in range(max(1, words)))

    def arrivals(self) -> list[float]:
        """Open loop: when each request is sent, in seconds from the start."""
        chosen = random.Random(f"{self.seed}/arrivals")
        moment = 0.0
        moments: list[float] = []
        for _ in range(self.requests):
            moments.append(moment)
            moment += chosen.expovariate(self.rate or 1.0)
        return moments
