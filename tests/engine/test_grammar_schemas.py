"""Schemas of every kind: what fits is allowed, what does not is not, and what cannot be kept to is refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tensorfold.chat.schemas.grammar import ready
from tensorfold.engine.grammars import Grammars
from tensorfold.errors import Unsupported
from tensorfold.ir import Choice, Ebnf, Grammar, JsonObject, JsonSchema, Regex
from tensorfold.testing.toy_tokenizer import ToyTokenizer

pytest.importorskip("xgrammar", reason="structured output needs the extra `grammar`")

TABLES = Path(__file__).parent / "schemas"
KEPT: list[dict[str, Any]] = json.loads((TABLES / "kept.json").read_text(encoding="utf-8"))
REFUSED: list[dict[str, Any]] = json.loads((TABLES / "refused.json").read_text(encoding="utf-8"))
TOKENIZER = ToyTokenizer()
END = TOKENIZER.ids("<end>")[0]


@pytest.fixture(scope="module")
def grammars() -> Grammars:
    return Grammars(TOKENIZER, TOKENIZER.size, {END})


def accepts(grammars: Grammars, grammar: Grammar, text: str) -> bool:
    """Whether a text is allowed token by token, and the end behind it."""
    matcher = grammars.compiled(grammar).matcher()
    for token in (*text.encode(), END):
        allowed = bool(matcher.allowed()[token])
        assert matcher.accept(token) == allowed, "the mask says what is accepted"
        if not allowed:
            return False
    return True


def spellings(schema: Any, value: Any) -> list[str]:
    """Compact, and with line breaks where the value is not given by the schema itself."""
    compact = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    given = "enum" in json.dumps(schema) or "const" in json.dumps(schema)
    return [compact] if given else [compact, json.dumps(value, ensure_ascii=False, indent=2)]


def test_there_are_120_schemas() -> None:
    assert len(KEPT) + len(REFUSED) >= 120


@pytest.mark.requirement("T-199", "T-210")
@pytest.mark.parametrize("case", KEPT, ids=lambda case: json.dumps(case["schema"])[:60])
def test_what_fits_a_schema_is_allowed_and_nothing_else(grammars: Grammars, case: dict[str, Any]) -> None:
    """And the end token only when the value is complete."""
    grammar = JsonSchema(case["schema"])
    for fits in (True, False):
        for value in case.get("valid" if fits else "invalid", ()):
            for text in spellings(case["schema"], value):
                assert accepts(grammars, grammar, text) == fits, text


@pytest.mark.requirement("T-214")
@pytest.mark.parametrize("case", REFUSED, ids=lambda case: json.dumps(case["schema"])[:60])
def test_what_cannot_be_kept_to_is_refused_by_keyword_and_place(grammars: Grammars, case: dict[str, Any]) -> None:
    """A 400 before any token, never a reply that is bound to something else."""
    with pytest.raises(Unsupported) as caught:
        grammars.compiled(JsonSchema(case["schema"]))
    assert (caught.value.status, caught.value.param) == (400, "response_format")
    assert caught.value.message.startswith(f"{case['keyword']} at {case['at']} of the JSON schema ")


NESTED: dict[str, Any] = {"type": "string"}
for _ in range(100):
    NESTED = {"type": "object", "properties": {"a": NESTED}}

BOMBS: dict[str, Any] = {
    "deep": NESTED,
    "a long enum": {"enum": [str(number) for number in range(10_000)]},
    "many branches": {"anyOf": [{"type": "object", "properties": {f"p{number}": {}}} for number in range(300)]},
    "many properties": {"type": "object", "properties": {f"p{number}": {} for number in range(5000)}},
    "long": {"description": "x" * 300_000, "type": "string"},
    "a counted group": {"type": "string", "pattern": "^(a|b){1,2000}$"},
    "nested counts": {"type": "string", "pattern": "^(((a{250}){250}){250})$"},
    "products": {"allOf": [{"anyOf": [{"minimum": 9 * part + number} for number in range(9)]} for part in range(3)]},
    "a chain of references": {
        "$ref": "#/$defs/d0",
        "$defs": {
            **{f"d{number}": {"allOf": [{"$ref": f"#/$defs/d{number + 1}"}]} for number in range(999)},
            "d999": {"type": "object"},
        },
    },
    "a circle of combinations": {
        "$ref": "#/$defs/a",
        "$defs": {
            "a": {"type": "object", "properties": {"x": {"allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}]}}},
            "b": {"type": "object", "properties": {"y": {"allOf": [{"$ref": "#/$defs/b"}, {"$ref": "#/$defs/a"}]}}},
        },
    },
    "a circle without a way out": {
        "$ref": "#/$defs/a",
        "$defs": {
            "a": {
                "type": "object",
                "properties": {"x": {"allOf": [{"$ref": "#/$defs/a"}, {"type": "object"}]}},
                "required": ["x"],
            },
        },
    },
    "itself": {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
    "lists of itself": {
        "$ref": "#/$defs/a",
        "$defs": {"a": {"type": "array", "items": {"$ref": "#/$defs/a"}, "minItems": 1}},
    },
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_schema_that_would_cost_too_much_is_refused_before_the_library_sees_it(name: str) -> None:
    """Or that no value could ever end."""
    with pytest.raises(Unsupported):
        ready(JsonSchema(BOMBS[name]))


def test_a_wide_product_is_refused_before_it_grows() -> None:
    """Each level doubles what is put together."""
    definitions: dict[str, Any] = {"d0": {"type": "object"}}
    for level in range(1, 24):
        below = {"$ref": f"#/$defs/d{level - 1}"}
        definitions[f"d{level}"] = {"anyOf": [{"allOf": [below, {"minProperties": level}]}, {"allOf": [below]}]}
    with pytest.raises(Unsupported, match="put together"):
        ready(JsonSchema({"$ref": "#/$defs/d23", "maxProperties": 50, "$defs": definitions}))


def test_what_is_put_together_within_itself_is_kept_to_at_any_depth(grammars: Grammars) -> None:
    """A circle that runs through a combination, as of `$ref` beside other keywords, has no place of its own to refer to."""
    entry: dict[str, Any] = {"minProperties": 1, "anyOf": [{"type": "string"}, {"$ref": "#/definitions/resource"}]}
    schema = JsonSchema(
        {
            "type": "object",
            "additionalProperties": entry,
            "definitions": {"resource": {"type": "object", "additionalProperties": entry}},
        }
    )
    for depth in (1, 5, 20):
        opened, closed = '{"a":' * depth, "}" * depth
        assert accepts(grammars, schema, f'{opened}"x"{closed}')
        assert not accepts(grammars, schema, f'{opened}{{"a":{{}}}}{closed}')
        assert not accepts(grammars, schema, f"{opened}1{closed}")


# ---- other forms -------------------------------------------------------------------------------------------


@pytest.mark.requirement("T-199", "T-200", "T-201")
@pytest.mark.parametrize(
    ("grammar", "fit", "unfit"),
    [
        (JsonObject(), ["{}", '{"a": [1, {"b": null}]}'], ["[]", "1", '"x"', "{} "]),
        (Regex("[a-z]+\\d?"), ["abc", "a1"], ["", "A", "a12", " a"]),
        (Regex("^(yes|no)$"), ["yes", "no"], ["yesno", "maybe"]),
        (Regex("(?P<year>\\d{4})-(?<month>\\d\\d)"), ["2026-11"], ["2026", "year-month"]),
        (Choice(("red", "green", 'b"\n🌧')), ["red", 'b"\n🌧'], ["blue", "re", "redd"]),
        (Ebnf('root ::= "a" rest*\nrest ::= [0-9] | "x" root'), ["a", "a12xa3"], ["", "1a", "ax"]),
    ],
)
def test_other_forms_are_kept_to_from_the_first_character_to_the_last(
    grammars: Grammars, grammar: Grammar, fit: list[str], unfit: list[str]
) -> None:
    """Any JSON object, an expression, a choice, a grammar."""
    assert all(accepts(grammars, grammar, text) for text in fit)
    assert not any(accepts(grammars, grammar, text) for text in unfit)


@pytest.mark.requirement("T-214")
@pytest.mark.parametrize(
    ("grammar", "reason"),
    [
        (Ebnf('roo ::= "a"'), "root rule"),
        (Ebnf("root ::= missing"), "missing"),
        (Ebnf('root ::= ("a"'), "EBNF parser error"),
        (Ebnf('root ::= "a"{1,100000}'), "counts to 100000"),
        (Ebnf("x" * 70_000), "70000 characters"),
        (Regex("(a"), "not closed"),
        (Regex("(?!a)b"), "looks ahead"),
        (Regex("(?P<a>x)(?P=a)"), "refers back"),
        (Regex("(?i)a"), "flags"),
        (Choice(("",)), "not empty"),
        (Choice(tuple(map(str, range(3000)))), "2000 texts"),
    ],
)
def test_what_cannot_be_compiled_is_refused_with_the_reason(grammars: Grammars, grammar: Grammar, reason: str) -> None:
    """The library's own where it is the library that refuses."""
    with pytest.raises(Unsupported, match=reason) as caught:
        grammars.compiled(grammar)
    assert (caught.value.status, caught.value.param) == (400, "response_format")
    assert "/" not in caught.value.message.partition(":")[0]


@pytest.mark.requirement("T-212")
def test_up_to_32_blanks_stand_between_two_tokens(grammars: Grammars) -> None:
    """Enough for any layout, and not for a reply of blanks."""
    schema = JsonSchema(
        {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string"}}}, "required": ["a"]}
    )
    assert accepts(grammars, schema, '{\n  "a": [\n    "x"\n  ]\n}')
    assert accepts(grammars, schema, '{"a":' + " " * 32 + '["x"]}')
    assert not accepts(grammars, schema, '{"a":' + " " * 33 + '["x"]}')
    assert not accepts(grammars, schema, '{"a": ["x",' + " " * 33 + '"y"]}')
    assert not accepts(grammars, schema, ' {"a": []}')


def test_keys_come_in_the_schemas_order(grammars: Grammars) -> None:
    schema = JsonSchema(
        {"type": "object", "properties": {"zeta": {}, "mid": {}, "alpha": {}}, "required": ["zeta", "mid", "alpha"]}
    )
    assert accepts(grammars, schema, '{"zeta":1,"mid":2,"alpha":3}')
    assert not accepts(grammars, schema, '{"alpha":3,"mid":2,"zeta":1}')


def test_a_grammar_is_compiled_once(grammars: Grammars) -> None:
    """The order of its keys is part of it."""
    one, again = JsonSchema({"type": "string", "maxLength": 3}), JsonSchema({"type": "string", "maxLength": 3})
    assert grammars.compiled(one) is grammars.compiled(again)
    other = JsonSchema({"maxLength": 3, "type": "string"})
    assert grammars.compiled(one) is not grammars.compiled(other)


def test_a_matcher_goes_back(grammars: Grammars) -> None:
    """To any earlier place, also from behind the end."""
    matcher = grammars.compiled(JsonSchema({"type": "array", "items": {"type": "integer"}})).matcher()
    masks = [matcher.allowed()]
    for token in b"[12,3]":
        assert matcher.accept(token)
        masks.append(matcher.allowed())
    assert matcher.accept(END)
    assert not matcher.accept(END)
    matcher.rollback(1)
    for back in range(6):
        assert (matcher.allowed() == masks[6 - back]).all()
        matcher.rollback(1)
    assert (matcher.allowed() == masks[0]).all()


def test_control_tokens_belong_to_no_text(grammars: Grammars) -> None:
    tokenizer = ToyTokenizer(control=("<end>", '"'))
    matcher = Grammars(tokenizer, tokenizer.size, {END}).compiled(JsonSchema({"type": "string"})).matcher()
    assert matcher.allowed()[ord('"')]
    assert not matcher.allowed()[END + 1]


def test_a_vocabulary_may_be_larger_than_the_tokenizer_or_smaller(grammars: Grammars) -> None:
    """Rows of logits are padded, and ids without a row cannot be drawn."""
    for size in (TOKENIZER.size + 43, 257):
        mask = Grammars(TOKENIZER, size, {END}).compiled(JsonObject()).matcher().allowed()
        assert mask.shape == (size,)
        assert mask[ord("{")]
        assert mask.sum() == 1


def test_a_model_without_an_end_token_cannot_bind_a_reply() -> None:
    with pytest.raises(Unsupported, match="no end token"):
        Grammars(TOKENIZER, TOKENIZER.size, ()).compiled(JsonObject())
