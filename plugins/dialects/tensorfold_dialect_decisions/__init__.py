"""Decisions: questions about an input, answered with a probability for each allowed answer.

`/v1/decisions` in SGLang's shape (answers by id) and in OpenAI's (answers in order), and TypeSafe's `/v1/systemone`. The
probabilities are read from the next token's distribution; no text is generated. They are not calibrated.
"""

from __future__ import annotations

from collections.abc import Iterable

from tensorfold import hookimpl
from tensorfold.contracts.dialect import Dialect, InquiryEndpoint
from tensorfold.contracts.examples import Example
from tensorfold.contracts.settings import PluginSettings
from tensorfold.wire.envelope import CommonErrors
from tensorfold_dialect_decisions.decisions import DecisionsCodec
from tensorfold_dialect_decisions.keyed import KeyedBody
from tensorfold_dialect_decisions.labels import SpelledTokens
from tensorfold_dialect_decisions.ordered import OrderedBody
from tensorfold_dialect_decisions.systemone import SystemOneBody, SystemOneCodec

__all__ = ["decisions_dialect", "tensorfold_dialects", "tensorfold_examples"]


def decisions_dialect() -> Dialect:
    """The dialect's declaration."""
    spelled = SpelledTokens()
    return Dialect(
        name="decisions",
        errors=CommonErrors(),
        inquiries=(
            InquiryEndpoint(
                "/v1/decisions",
                DecisionsCodec(spelled),
                bodies=(KeyedBody, OrderedBody),
                about="probabilities of answers to questions",
            ),
            InquiryEndpoint(
                "/v1/systemone",
                SystemOneCodec(spelled),
                bodies=(SystemOneBody,),
                about="probabilities of answers to named questions",
            ),
        ),
    )


@hookimpl
def tensorfold_dialects(settings: PluginSettings) -> Iterable[Dialect]:
    """One dialect."""
    yield decisions_dialect()


@hookimpl
def tensorfold_examples() -> Iterable[Example]:
    """What `tensorfold check` tries it with."""
    from tensorfold_dialect_decisions.examples import EXAMPLE

    yield EXAMPLE
