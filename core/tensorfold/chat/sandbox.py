"""The Jinja environment of chat templates: what Hugging Face's templates expect, sandboxed and bounded.

Expected are trimmed blocks, `break` and `continue`, the `generation` tag, `tojson` without HTML escapes,
`raise_exception` and `strftime_now`; templates are compiled with the steps counted that their loops and macros take.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final, NoReturn, cast

from jinja2 import Template, nodes
from jinja2.exceptions import TemplateError, TemplateSyntaxError
from jinja2.ext import Extension, loopcontrols
from jinja2.filters import do_indent
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import pass_context
from jinja2.visitor import NodeTransformer

from tensorfold.chat.budget import Budget, bounded_concat, bounded_format, bounded_number, bounded_text, has_parts
from tensorfold.chat.counted import counted_filters, counted_tests

__all__ = ["TEMPLATE_FILE", "TemplateRefusal", "compile_template", "render"]

TEMPLATE_FILE: Final = "<chat template>"
"""What tracebacks call the template."""

_OURS: Final = "_tensorfold"
_BUDGET: Final = f"{_OURS}_budget"
_TICK: Final = f"{_OURS}_tick"
_JOIN: Final = f"{_OURS}_join"
_FORMATS: Final = f"{_OURS}_formats"
"""Marks a function that writes its arguments."""
_WEIGHED: Final = f"{_OURS}_weighed"


_TO_BYTES: Final = frozenset({"encode", "maketrans", "translate"})

MAX_SOURCE: Final = 1 << 20
"""Characters of a template; the longest that are known have some ten thousand."""


class TemplateRefusal(TemplateError):
    """What a template raises by `raise_exception`, in its own words."""


def compile_template(source: str, mark: Callable[[str], str]) -> Template:
    """Compile a template; `mark` respells the control tokens of its own texts.

    Raises:
        jinja2.TemplateSyntaxError: it is no Jinja template.
        SyntaxError, RecursionError, MemoryError: it is one that Python cannot compile.
        ValueError: it is too long.
    """
    if len(source) > MAX_SOURCE:
        raise ValueError(f"it has {len(source)} characters, and at most {MAX_SOURCE} are read")
    environment = _Environment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[GenerationTag, loopcontrols],
        cache_size=0,
        finalize=_finalize,
    )
    tree = cast("nodes.Template", _Rewriter(mark).visit(environment.parse(source, filename=TEMPLATE_FILE)))
    tree.set_environment(environment)
    code = environment.compile(tree, filename=TEMPLATE_FILE)
    return Template.from_code(environment, code, environment.make_globals(None))


def render(template: Template, variables: Mapping[str, Any]) -> str:
    """The template's text for these variables.

    Raises:
        Exception: whatever the template's code raises; `TemplateRefusal` is its own refusal.
    """
    return template.render({**variables, _BUDGET: Budget()})


# ---- the environment ---------------------------------------------------------------------------------------


class _Environment(ImmutableSandboxedEnvironment):
    """Counts calls and the text that operators make, against the rendering's budget."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})
    concat = staticmethod(bounded_concat)

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        names = cast("dict[str, Any]", self.globals)  # pyright: ignore[reportUnknownMemberType]
        names["raise_exception"] = _raise_exception
        names["strftime_now"] = _strftime_now
        names[_TICK] = _tick
        names[_JOIN] = _join
        names[_WEIGHED] = _weighed
        # Makes text of any length; no chat template wants filler.
        names.pop("lipsum", None)
        filters = cast("dict[str, Callable[..., Any]]", self.filters)  # pyright: ignore[reportUnknownMemberType]
        filters["tojson"] = _tojson
        filters["format"] = _format
        filters["indent"] = _indent
        for name in ("batch", "center", "slice", "truncate"):
            filters[name] = _bounded(filters[name])
        self.filters = counted_filters(filters, _budget)
        tests = cast("dict[str, Callable[..., Any]]", self.tests)  # pyright: ignore[reportUnknownMemberType]
        self.tests = counted_tests(tests, _budget)

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        budget = _budget(context)
        budget.step()
        owner = getattr(obj, "__self__", None)
        if isinstance(owner, str):
            budget.method(owner, obj.__name__, (*args, *kwargs.values()))
        elif obj is _weighed or getattr(obj, _FORMATS, False):
            for argument in (*args, *kwargs.values()):
                budget.weigh(argument)
        elif obj is _join:
            for part in args[0]:
                budget.weigh(part)
        result = super().call(context, obj, *args, **kwargs)
        if isinstance(result, str):
            budget.text(len(result))
        return result

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        # Numbers and bytes have methods that make as much as they are told, and no template needs them.
        if isinstance(obj, int | float | complex | bytes) or (isinstance(obj, str) and attr in _TO_BYTES):
            return False
        return super().is_safe_attribute(obj, attr, value)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        _budget(context).operation(operator, left, right)
        return super().call_binop(context, operator, left, right)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        wrapped = super().wrap_str_format(value)
        return None if wrapped is None else _bounded_formatter(value.__self__, wrapped)


class GenerationTag(Extension):
    """`{% generation %}`: what the assistant says, for those who train; a block like any other here."""

    tags = {"generation"}  # noqa: RUF012 - as the base class declares it

    def parse(self, parser: Parser) -> nodes.Node:
        """The block's statements, in a scope of their own."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


def _budget(context: Context) -> Budget:
    return cast("Budget", context.parent[_BUDGET])


@pass_context
def _finalize(context: Context, value: Any) -> Any:
    """What is written is walked to its last part."""
    if has_parts(value):
        _budget(context).weigh(value)
    return value


def _weighed(value: object) -> object:
    """One side of a comparison, which the environment weighs as it calls this."""
    return value


def _tick() -> None:
    """Called once a loop round and macro call, and counted by the environment as any call is."""


def _join(parts: list[object]) -> str:
    """What `~` does."""
    return bounded_concat(map(str, parts))


def _raise_exception(message: str) -> NoReturn:
    raise TemplateRefusal(str(message))


def _strftime_now(format: str) -> str:
    bounded_number(len(format))
    bounded_format(format)
    return datetime.now().strftime(format)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own escapes for HTML, which models have not seen.
    encoder = json.JSONEncoder(ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    if indent is None:
        return encoder.encode(value)
    # Indented, deep values become far longer than they were.
    bounded_number(indent)
    return bounded_concat(encoder.iterencode(value))


def _indent(value: str, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    """Jinja's filter of that name."""
    text = str(value)
    step = len(width) if isinstance(width, str) else max(width, 0)
    bounded_text(len(text) + (text.count("\n") + 1) * step)
    return do_indent(text, width, first, blank)


def _bounded(filter: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that takes no large numbers."""

    def bounded(*args: Any, **kwargs: Any) -> Any:
        for argument in (*args, *kwargs.values()):
            bounded_number(argument)
        return filter(*args, **kwargs)

    # Marks such as `pass_environment` lie on the function.
    bounded.__dict__.update(filter.__dict__)
    return bounded


def _bounded_formatter(pattern: str, format: Callable[..., str]) -> Callable[..., str]:
    def bounded(*args: Any, **kwargs: Any) -> str:
        bounded_format(pattern)
        return format(*args, **kwargs)

    setattr(bounded, _FORMATS, True)
    return bounded


def _format(value: object, *args: Any, **kwargs: Any) -> str:
    """Jinja's filter of that name."""
    pattern = str(value)
    bounded_format(pattern)
    return pattern % (kwargs or args)


# ---- the template's own code -------------------------------------------------------------------------------


class _Rewriter(NodeTransformer):
    """Marks control tokens in texts, counts loops and macros, and joins by a call that is counted."""

    def __init__(self, mark: Callable[[str], str]) -> None:
        self._mark = mark

    def visit_TemplateData(self, node: nodes.TemplateData) -> nodes.Node:
        node.data = self._mark(node.data)
        return node

    def visit_Const(self, node: nodes.Const) -> nodes.Node:
        if isinstance(node.value, str):
            node.value = self._mark(node.value)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        parts = nodes.List(node.nodes, lineno=node.lineno)
        return _call(_JOIN, [parts], node)

    def visit_Name(self, node: nodes.Name) -> nodes.Node:
        _check_name(node.name, node)
        return node

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        self.generic_visit(node)
        sides = [node.expr, *(operand.expr for operand in node.ops)]
        # A text or number that the template itself names is compared at once, whatever the other side is.
        if not any(isinstance(side, nodes.Const) for side in sides):
            node.expr = _call(_WEIGHED, [node.expr], node)
            for operand in node.ops:
                operand.expr = _call(_WEIGHED, [operand.expr], node)
        return node

    def visit_For(self, node: nodes.For) -> nodes.Node:
        return self._counted(node)

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:
        _check_name(node.name, node)
        return self._counted(node)

    def visit_CallBlock(self, node: nodes.CallBlock) -> nodes.Node:
        return self._counted(node)

    def _counted(self, node: nodes.For | nodes.Macro | nodes.CallBlock) -> nodes.Node:
        self.generic_visit(node)
        node.body.insert(0, nodes.ExprStmt(_call(_TICK, [], node), lineno=node.lineno))
        return node


def _check_name(name: str, at: nodes.Node) -> None:
    """Names of ours are not the template's to read or to replace."""
    if name.startswith(_OURS):
        raise TemplateSyntaxError(f"{name} is no name for a template", at.lineno, filename=TEMPLATE_FILE)


def _call(name: str, arguments: list[nodes.Expr], at: nodes.Node) -> nodes.Call:
    line = at.lineno
    return nodes.Call(nodes.Name(name, "load", lineno=line), arguments, [], None, None, lineno=line)
