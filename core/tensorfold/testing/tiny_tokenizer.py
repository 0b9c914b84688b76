"""The tokenizer of tiny checkpoints: byte-level BPE with some English merges, and four control tokens."""

from __future__ import annotations

from typing import Final

from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

from tensorfold.checkpoint.tokenizer import add_token

__all__ = ["CHAT_TEMPLATE", "CONTROL_TOKENS", "TINY_VOCABULARY", "tiny_tokenizer", "tiny_vocabulary"]

CONTROL_TOKENS: Final = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|tool|>")
"""The last ids of the vocabulary, in this order."""

_MERGES: Final = (
    "t h|Ġ t|h e|Ġ a|i n|r e|o n|Ġt he|e r|Ġ s|a t|Ġ w|e n|Ġ o|o u|Ġ c|i s|i t|n d|e s|Ġ b|a n|Ġ f|in g|Ġ p|o r|Ġ m|"
    "Ġa nd|Ġ in|Ġ d|a r|Ġt o|Ġo f|l l|o m|Ġ h|e d|Ġy ou|Ġ y|l e|s t|Ġ is|e l|u t|Ġ 1|l o|l d|Ġw or|h el|hel lo|Ġ l|"
    "r o|v e|i c|Ġb e|Ġ re|c h|Ġ g|u r|s e"
)
"""Left and right piece of each merge, best first."""

CHAT_TEMPLATE: Final = (
    "{%- if tools %}<|im_start|>system\nTools: {{ tools | tojson }}<|im_end|>\n{% endif %}"
    "{%- for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}"
    "{%- for call in message.tool_calls or [] %}<|tool|>{{ call.function | tojson }}{% endfor %}<|im_end|>\n{% endfor %}"
    "{%- if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""ChatML, with calls as JSON."""


def _pieces() -> list[tuple[str, str]]:
    pairs = (merge.split(" ") for merge in _MERGES.split("|"))
    return [(left, right) for left, right in pairs]


def tiny_vocabulary() -> tuple[list[str], list[tuple[str, str]]]:
    """Every token in the order of its id, control tokens last, and the merges."""
    merges = _pieces()
    return [*sorted(ByteLevel.alphabet()), *(left + right for left, right in merges), *CONTROL_TOKENS], merges


TINY_VOCABULARY: Final = 256 + len(_MERGES.split("|")) + len(CONTROL_TOKENS)
"""Ids of a tiny checkpoint, each with a spelling."""


def tiny_tokenizer() -> Tokenizer:
    """The tokenizer, as tokenizer.json has it."""
    tokens, merges = tiny_vocabulary()
    vocabulary = {token: id for id, token in enumerate(tokens[: -len(CONTROL_TOKENS)])}
    tokenizer = Tokenizer(BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = ByteLevelDecoder()
    for token in CONTROL_TOKENS:
        add_token(tokenizer, AddedToken(token, special=True, normalized=False))
    return tokenizer
