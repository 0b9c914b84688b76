"""Text to ids and ids to bytes, over the `tokenizers` library, whatever the tokenizer was built from."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final, Literal, TypeAlias

import tokenizers
from tokenizers import AddedToken

from tensorfold.errors import CheckpointUnsupported

__all__ = ["CheckpointTokenizer", "Spelling", "add_token"]

Spelling: TypeAlias = Literal["bytes", "sentencepiece"]
"""How a vocabulary writes its tokens: one printable character for each byte (GPT-2's table), or text with U+2581
for a blank and `<0x0A>` for a single byte."""

MAX_MISSING: Final = 65_536
"""Ids below the highest one that may have no token."""

_BYTE_PIECE: Final = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def _byte_characters() -> dict[str, int]:
    """GPT-2's table: printable bytes stand for themselves, the others are moved up to U+0100 and after."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    moved = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + at): byte for at, byte in enumerate(moved)}


_BYTES: Final[Mapping[str, int]] = _byte_characters()


class CheckpointTokenizer:
    """`Tokenizer` and `PieceEncoder`. Safe to use from several threads: nothing of it changes."""

    def __init__(self, tokenizer: tokenizers.Tokenizer, spelling: Spelling) -> None:
        """Takes the tokenizer over: nobody else may change it.

        Raises:
            CheckpointUnsupported: its ids are too far apart.
        """
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer = tokenizer
        self._spelling: Spelling = spelling
        self._added: Mapping[int, AddedToken] = tokenizer.get_added_tokens_decoder()
        self._control = frozenset(token for token, added in self._added.items() if added.special)
        self._size = max([*tokenizer.get_vocab(with_added_tokens=True).values(), -1]) + 1
        self._plain = _PlainText(tokenizer, self._added)
        self._prefix, self._suffix = _affixes(tokenizer)

    @property
    def size(self) -> int:
        """One more than the highest id."""
        return self._size

    def encode(self, text: str, *, add_special_tokens: bool, parse_special: bool) -> list[int]:
        """Ids of a text."""
        if parse_special:
            return _encode(self._tokenizer, text, add_special_tokens=add_special_tokens)
        ids = self._plain.encode((text,))
        return [*self._prefix, *ids, *self._suffix] if add_special_tokens else ids

    def encode_pieces(self, pieces: Sequence[str | int]) -> list[int]:
        """Ids of a text in which numbers are control tokens and strings are ordinary text, whatever they spell."""
        return self._plain.encode(pieces)

    def token_bytes(self, token: int) -> bytes:
        """The bytes that a token adds to a text; empty for an id without a spelling."""
        added = self._added.get(token)
        if added is not None:
            return added.content.encode()
        piece = self._tokenizer.id_to_token(token)
        if piece is None:
            return b""
        if self._spelling == "sentencepiece":
            byte = _BYTE_PIECE.fullmatch(piece)
            return bytes.fromhex(byte[1]) if byte else piece.replace("\u2581", " ").encode()
        # Some vocabularies hold plain text among their byte characters.
        return bytes(_BYTES[each] for each in piece) if all(each in _BYTES for each in piece) else piece.encode()

    def is_special(self, token: int) -> bool:
        """Whether the token is a control token."""
        return token in self._control

    def token_id(self, spelling: str) -> int | None:
        """The id of a token of exactly this spelling in the vocabulary."""
        return self._tokenizer.token_to_id(spelling)


class _PlainText:
    """The same tokenizer with its control tokens respelled, so that no text can name them.

    Model, normalizer and cut are shared with the original; the new spellings are random numbers that only this object
    knows. One call then encodes text with control tokens in it, and no place in it depends on where the pieces met.
    """

    def __init__(self, tokenizer: tokenizers.Tokenizer, added: Mapping[int, AddedToken]) -> None:
        secret = f"{secrets.randbelow(10**30):030}"
        self._marks = {token: f"{secret}{token:08}" for token, each in added.items() if each.special}
        self._tokenizer = tokenizers.Tokenizer(tokenizer.model)
        if tokenizer.normalizer is not None:
            self._tokenizer.normalizer = tokenizer.normalizer
        if tokenizer.pre_tokenizer is not None:
            self._tokenizer.pre_tokenizer = tokenizer.pre_tokenizer
        spellings = {token: self._marks.get(token, each.content) for token, each in added.items()}
        for number in range(_missing_ids(tokenizer)):
            # The library numbers added tokens from the count of the vocabulary on, and would take ids that are in use.
            add_token(self._tokenizer, AddedToken(f"{secret}filler{number}"))
        for token, each in sorted(added.items()):
            add_token(self._tokenizer, _respelled(each, spellings[token]))
        self._ids = {self._tokenizer.token_to_id(spelling): token for token, spelling in spellings.items()}
        controls = {token: added[token].content for token in self._marks}
        self._pieces = {token: spelling for token, spelling in controls.items() if self._is_piece(spelling)}
        """Control tokens that the model itself has, as a piece like any other."""

    def encode(self, pieces: Sequence[str | int]) -> list[int]:
        """Ids of the pieces, numbers being control tokens."""
        found = self._encoded(pieces)
        if self._pieces.keys().isdisjoint(found):
            return self._own(found)
        # A unigram model takes any piece that it has, so texts that spell a control token are cut within it.
        spelled = re.compile("|".join(map(re.escape, sorted(self._pieces.values(), key=len, reverse=True))))
        parts = [part for piece in pieces for part in (_cut(piece, spelled) if isinstance(piece, str) else [piece])]
        return [token for part in parts for token in self._own(self._encoded((part,)))]

    def _encoded(self, pieces: Iterable[str | int]) -> list[int]:
        text = "".join(piece if isinstance(piece, str) else self._marks[piece] for piece in pieces)
        return _encode(self._tokenizer, text, add_special_tokens=False)

    def _own(self, found: list[int]) -> list[int]:
        """The tokenizer's ids, from those of the respelled one."""
        ids = self._ids
        return [ids.get(token, token) for token in found]

    def _is_piece(self, spelling: str) -> bool:
        return self._tokenizer.token_to_id(spelling) is not None


def _missing_ids(tokenizer: tokenizers.Tokenizer) -> int:
    """How many ids below the vocabulary's highest have no token."""
    ids = tokenizer.get_vocab(with_added_tokens=False).values()
    missing = max(ids, default=-1) + 1 - len(ids)
    if missing > MAX_MISSING:
        raise CheckpointUnsupported(f"the tokenizer leaves {missing} ids without a token; up to {MAX_MISSING} may be")
    return missing


def _cut(text: str, spelled: re.Pattern[str]) -> list[str]:
    """The text in parts that end within each of these spellings."""
    ends = [match.start() + 1 for match in spelled.finditer(text)]
    return [text[begin:end] for begin, end in pairwise([0, *ends, len(text)])]


def add_token(tokenizer: tokenizers.Tokenizer, token: AddedToken) -> None:
    """Add one token: in a batch the library goes by kind, and ids would not follow the given order."""
    tokenizer.add_tokens([token])  # pyright: ignore[reportUnknownMemberType]


def _respelled(token: AddedToken, spelling: str) -> AddedToken:
    return AddedToken(
        spelling,
        single_word=token.single_word,
        lstrip=token.lstrip,
        rstrip=token.rstrip,
        normalized=token.normalized,
        special=token.special,
    )


def _encode(tokenizer: tokenizers.Tokenizer, text: str, *, add_special_tokens: bool) -> list[int]:
    # PERF: `encode` holds the GIL and notes offsets; this lets other threads run and takes half the time.
    try:
        (encoding,) = tokenizer.encode_batch_fast([text], add_special_tokens=add_special_tokens)
    except TypeError:
        # Half a surrogate pair is no text; a template may write one.
        whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        (encoding,) = tokenizer.encode_batch_fast([whole], add_special_tokens=add_special_tokens)
    return encoding.ids


def _affixes(tokenizer: tokenizers.Tokenizer) -> tuple[list[int], list[int]]:
    """What the tokenizer itself puts before and after a text."""
    bare = _encode(tokenizer, "a", add_special_tokens=False)
    whole = _encode(tokenizer, "a", add_special_tokens=True)
    starts = (at for at in range(len(whole) - len(bare) + 1) if whole[at : at + len(bare)] == bare)
    at = next(starts, 0)
    return whole[:at], whole[at + len(bare) :]
