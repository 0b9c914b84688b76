"""A tokenizer without a file: 256 byte tokens, then words, then control tokens; and prompts to go with it."""

from __future__ import annotations

from collections.abc import Sequence

from tensorfold.contracts.engine import PreparedPrompt
from tensorfold.ir import Chat, Message, Prompt, Text, TextPrompt, TokensPrompt

__all__ = ["ToyPrompts", "ToyTokenizer"]


class ToyTokenizer:
    """Implements `contracts.chat.Tokenizer`. Text is encoded byte by byte; words are only ever decoded."""

    def __init__(self, words: Sequence[str] = (), control: Sequence[str] = ("<end>",)) -> None:
        self._spellings = [bytes([value]) for value in range(256)]
        self._spellings += [word.encode() for word in words]
        self._first_control = len(self._spellings)
        self._spellings += [spelling.encode() for spelling in control]
        # Of tokens that are spelled alike the first one is meant: a byte before a word.
        self._ids = {spelling: token for token, spelling in reversed([*enumerate(self._spellings)])}

    @property
    def size(self) -> int:
        """Bytes, words and control tokens."""
        return len(self._spellings)

    def encode(self, text: str, *, add_special_tokens: bool, parse_special: bool) -> list[int]:
        """One id a byte; a control token's spelling is one id where it is to be parsed."""
        ids: list[int] = []
        data = text.encode(errors="replace")
        control = self._spellings[self._first_control :] if parse_special else []
        while data:
            spelling = next((each for each in control if data.startswith(each)), data[:1])
            ids.append(self._ids[spelling])
            data = data[len(spelling) :]
        return ids

    def token_bytes(self, token: int) -> bytes:
        """Its spelling."""
        return self._spellings[token]

    def is_special(self, token: int) -> bool:
        """Whether it is one of the control tokens."""
        return token >= self._first_control

    def token_id(self, spelling: str) -> int | None:
        """A byte, a word or a control token."""
        return self._ids.get(spelling.encode())

    def ids(self, *spellings: str) -> tuple[int, ...]:
        """The tokens that are spelled exactly so."""
        return tuple(self._ids[spelling.encode()] for spelling in spellings)


class ToyPrompts:
    """Renders a conversation as `role: text` lines, the last one open for the reply."""

    def __init__(self, tokenizer: ToyTokenizer, opening: int | None = None) -> None:
        """`opening` is the token that opens a message, if there is one."""
        self._tokenizer = tokenizer
        self._opening = opening

    def prepare(self, prompt: Prompt) -> PreparedPrompt:
        """The prompt's ids."""
        match prompt:
            case TokensPrompt(ids):
                return PreparedPrompt(ids, None, self._markers(ids))
            case TextPrompt(text):
                return self._encoded(text)
            case Chat(messages):
                return self._encoded("".join(f"{each.role}: {_text(each)}\n" for each in messages) + "assistant: ")

    def _encoded(self, text: str) -> PreparedPrompt:
        ids = tuple(self._tokenizer.encode(text, add_special_tokens=False, parse_special=True))
        return PreparedPrompt(ids, text, self._markers(ids))

    def _markers(self, ids: Sequence[int]) -> tuple[int, ...]:
        return tuple(place for place, token in enumerate(ids) if token == self._opening)


def _text(message: Message) -> str:
    return "".join(part.text for part in message.parts if isinstance(part, Text))
