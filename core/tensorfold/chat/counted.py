"""Jinja's filters and tests, counted against the budget of their rendering: none of them counts by itself.

Values of a template may share parts (`[x, x]`, again and again): they are small in memory, and whatever walks them, to
write, sort or compare them, would never end. So these are weighed first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from jinja2.runtime import Context
from jinja2.utils import pass_context

from tensorfold.chat.budget import Budget, has_parts

__all__ = ["counted_filters", "counted_tests"]

UNWANTED: Final = frozenset({"filesizeformat", "pprint", "random", "striptags", "urlize", "wordwrap", "xmlattr"})
"""Filters that no chat template has use for: some take time that grows with the square of a text, one draws lots."""

OF_TEXT: Final = frozenset(
    [
        "abs",
        "attr",
        "capitalize",
        "center",
        "count",
        "d",
        "default",
        "e",
        "escape",
        "first",
        "float",
        "forceescape",
        "format",
        "indent",
        "int",
        "last",
        "length",
        "lower",
        "replace",
        "round",
        "safe",
        "string",
        "title",
        "tojson",
        "trim",
        "truncate",
        "upper",
        "urlencode",
        "wordcount",
    ]
)
"""Filters that take a text as it is; the others take it apart, character by character."""

SHALLOW: Final = frozenset({"attr", "count", "d", "default", "first", "items", "last", "length", "list", "reverse"})
"""Filters that look at a value's outside alone."""

COMPARING: Final = frozenset(
    {"eq", "equalto", "==", "ne", "!=", "lt", "lessthan", "<", "le", "<=", "gt", "greaterthan", ">", "ge", ">=", "in"}
)
"""Tests that compare, part by part."""


def counted_filters(filters: Mapping[str, Callable[..., Any]], budget: Callable[[Context], Budget]) -> dict[str, Any]:
    """The same filters, each counted and given no more than it can take."""

    def count(name: str, filter: Callable[..., Any]) -> Callable[..., Any]:
        adapted = _with_context(filter)

        @pass_context
        def counted(context: Context, value: Any = None, *args: Any, **kwargs: Any) -> Any:
            spent = budget(context)
            spent.work()
            if isinstance(value, str) and name not in OF_TEXT:
                spent.items(len(value))
            if name not in SHALLOW:
                for each in (value, *args, *kwargs.values()):
                    spent.weigh(each)
            result = adapted(context, value, *args, **kwargs)
            if isinstance(result, str):
                spent.text(len(result))
            return result

        return counted

    return {name: count(name, filter) for name, filter in filters.items() if name not in UNWANTED}


def counted_tests(tests: Mapping[str, Callable[..., Any]], budget: Callable[[Context], Budget]) -> dict[str, Any]:
    """The same tests; those that compare weigh what they are given."""

    def count(test: Callable[..., Any]) -> Callable[..., Any]:
        adapted = _with_context(test)

        @pass_context
        def counted(context: Context, *args: Any) -> Any:
            if all(map(has_parts, args)):
                for each in args:
                    budget(context).weigh(each)
            return adapted(context, *args)

        return counted

    return {name: count(test) if name in COMPARING else test for name, test in tests.items()}


def _with_context(function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter or test that is given the context, whatever it wants of it itself."""
    wants = getattr(function, "jinja_pass_arg", None)
    asked = None if wants is None else str(wants.name)
    if asked == "context":
        return function

    def adapted(context: Context, /, *args: Any, **kwargs: Any) -> Any:
        match asked:
            case "eval_context":
                return function(context.eval_ctx, *args, **kwargs)
            case "environment":
                return function(context.environment, *args, **kwargs)
            case _:
                return function(*args, **kwargs)

    return adapted
