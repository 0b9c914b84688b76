"""Grammars compiled by xgrammar: off the event loop, each once at a time, the latest ones kept."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections import OrderedDict
from collections.abc import Collection
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from tensorfold.chat.schemas.grammar import JsonForm, TextForm, filled, ready
from tensorfold.contracts.chat import Tokenizer
from tensorfold.engine.grammar import CompiledGrammar, Matcher
from tensorfold.errors import Unsupported
from tensorfold.ir import Grammar

__all__ = ["Grammars"]

MAX_KEPT: Final = 64
"""Compiled grammars that are kept."""
MAX_BLANKS: Final = 32
"""Characters of white space between two tokens of JSON."""
PARAM: Final = "response_format"
INSTALL: Final = "pip install 'tensorfold[grammar]'"

_WHERE: Final = re.compile(r"^\[[\d:]+\] \S+:\d+: ")
"""What the library puts before its reasons."""


class Grammars:
    """Compiles for one tokenizer. Used by several threads."""

    def __init__(self, tokenizer: Tokenizer, vocabulary: int, ends: Collection[int]) -> None:
        self._tokenizer = tokenizer
        self._vocabulary = vocabulary
        self._ends = sorted(end for end in ends if end < vocabulary)
        self._kept: OrderedDict[bytes, CompiledGrammar] = OrderedDict()
        self._at_work: dict[bytes, threading.Lock] = {}
        self._lock = threading.Lock()
        self._library: _Library | None = None
        self._loading = threading.Lock()

    def compiled(self, grammar: Grammar) -> CompiledGrammar:
        """The grammar, compiled; takes a while the first time.

        Raises:
            Unsupported: it cannot be kept to, the library refuses it, or there is no library.
        """
        key = hashlib.sha256(msgspec.json.encode(grammar)).digest()
        with self._lock:
            found = self._found(key)
            if found is not None:
                return found
            working = self._at_work.setdefault(key, threading.Lock())
        with working:
            with self._lock:
                found = self._found(key)
            if found is None:
                found = self._compile(grammar)
                with self._lock:
                    self._kept[key] = found
                    while len(self._kept) > MAX_KEPT:
                        self._kept.popitem(last=False)
                    self._at_work.pop(key, None)
        return found

    def _found(self, key: bytes) -> CompiledGrammar | None:
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
        return found

    def _compile(self, grammar: Grammar) -> CompiledGrammar:
        form = ready(grammar)
        if not self._ends:
            raise Unsupported("this model has no end token, and a bound reply could not end", param=PARAM)
        with self._loading:
            if self._library is None:
                self._library = _Library(self._tokenizer, self._vocabulary, self._ends)
        return self._library.compile(form)


class _Library:
    """xgrammar over one vocabulary. To build one takes seconds."""

    def __init__(self, tokenizer: Tokenizer, vocabulary: int, ends: list[int]) -> None:
        try:
            # Brings torch along, so it is loaded when a reply is first bound.
            import xgrammar
        except ImportError:
            raise Unsupported(
                f"structured output needs xgrammar, which this server has not installed: {INSTALL}", param=PARAM
            ) from None
        self._xgrammar: Any = xgrammar
        count = min(tokenizer.size, vocabulary)
        # An empty spelling is never allowed: control tokens belong to no text.
        spellings = [b"" if tokenizer.is_special(token) else tokenizer.token_bytes(token) for token in range(count)]
        tokens = self._xgrammar.TokenizerInfo(
            spellings, self._xgrammar.VocabType.RAW, vocab_size=vocabulary, stop_token_ids=ends
        )
        # Its own cache keeps no grammars that are compiled as they are used.
        self._compiler = self._xgrammar.GrammarCompiler(
            tokens, max_threads=1, cache_enabled=False, enable_dynamic_compilation=True
        )
        self._vocabulary = vocabulary

    def compile(self, form: JsonForm | TextForm) -> CompiledGrammar:
        """The form, compiled.

        Raises:
            Unsupported: with the library's reason.
        """
        try:
            match form:
                case JsonForm(schema, rules):
                    text = filled(str(self._from_schema(schema)), rules)
                case TextForm(text):
                    pass
            return _Compiled(self._xgrammar, self._compiler.compile_grammar(text), self._vocabulary)
        except (RuntimeError, ValueError, TypeError, RecursionError) as error:
            reason = _WHERE.sub("", str(error)).strip().partition("\n")[0]
            raise Unsupported(f"the grammar cannot be compiled: {reason[:500]}", param=PARAM) from error

    def _from_schema(self, schema: object) -> Any:
        return self._xgrammar.Grammar.from_json_schema(
            json.dumps(schema, ensure_ascii=False),
            any_whitespace=True,
            strict_mode=False,
            max_whitespace_cnt=MAX_BLANKS,
        )


class _Compiled:
    """Implements `CompiledGrammar`."""

    def __init__(self, xgrammar: Any, compiled: Any, vocabulary: int) -> None:
        self._xgrammar = xgrammar
        self._compiled = compiled
        self._vocabulary = vocabulary

    def matcher(self) -> Matcher:
        """A fresh one."""
        return _Matcher(self._xgrammar.GrammarMatcher(self._compiled), self._vocabulary)


class _Matcher:
    """Implements `Matcher`."""

    def __init__(self, matcher: Any, vocabulary: int) -> None:
        self._matcher = matcher
        self._bits = np.zeros((1, (vocabulary + 31) // 32), dtype=np.int32)
        self._vocabulary = vocabulary

    def accept(self, token: int) -> bool:
        """One token more."""
        return not self._matcher.is_terminated() and bool(self._matcher.accept_token(token))

    def rollback(self, tokens: int) -> None:
        """So many less."""
        self._matcher.rollback(tokens)

    def allowed(self) -> NDArray[np.bool_]:
        """`[V]`."""
        self._bits.fill(-1)
        self._matcher.fill_next_token_bitmask(self._bits)
        bits = np.unpackbits(self._bits.view(np.uint8), bitorder="little")
        return bits[: self._vocabulary].astype(np.bool_)
