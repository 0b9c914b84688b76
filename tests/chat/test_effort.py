"""Whether and how much a model shall think, with the vendors' own templates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tensorfold.chat.effort import EFFORTS, EffortLevels, effort_levels
from tensorfold.chat.formats import GemmaFormat, GlmFormat, HermesFormat, NemotronFormat, QwenFormat
from tensorfold.chat.prompt import PromptBuilder
from tensorfold.chat.template import ChatTemplate
from tensorfold.chat.thinking import ChatDefaults
from tensorfold.checkpoint.tokenizer import CheckpointTokenizer
from tensorfold.contracts.chat import ChatFormat, ChatTemplates
from tensorfold.errors import Unsupported
from tensorfold.ir import Chat, Message, Text, Thinking
from tensorfold.testing.tiny_tokenizer import TINY_VOCABULARY

Vendor = Callable[[str], str]

GLM = """\
[gMASK]<sop>
{%- set effective_reasoning_effort = reasoning_effort if reasoning_effort is defined and reasoning_effort in ['low', 'high'] else 'max' -%}
{%- if effective_reasoning_effort is not none -%}<|system|>Reasoning Effort: {{ effective_reasoning_effort | capitalize }}{%- endif -%}
{%- set ns = namespace(last_user_index=-1) -%}
{%- for m in messages %}{% if m.role == 'user' %}{%- set ns.last_user_index = loop.index0 -%}{% endif %}{% endfor -%}
{%- for m in messages -%}
<|{{ m.role }}|>
{%- set reasoning_content = m.reasoning_content -%}
{%- if m.role == 'assistant' -%}
{%- if loop.index0 > ns.last_user_index and reasoning_content -%}
{{ '<think>' + reasoning_content + '</think>' }}
{%- else -%}
{{ '<think></think>' }}
{%- endif -%}
{%- endif -%}
{{ m.content }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    <|assistant|>{{- '<think>' -}}
{%- endif -%}
"""
"""In the shape of the vendor's: without an off switch, and dropping earlier reasoning."""

VERBATIM = "{% for m in messages %}{{ m.content }}{% endfor %}Reasoning: {{ reasoning_effort | default('medium') }}"
ALWAYS = "{% for m in messages %}{{ m.content }}{% endfor %}<think>\n"
NEVER = "{% for m in messages %}{{ m.content }}{% endfor %}"


class Prompts:
    """Prompts of one template."""

    def __init__(self, source: str, format: ChatFormat, tokenizer: CheckpointTokenizer, **defaults: Any) -> None:
        self._builder = PromptBuilder(
            tokenizer, ChatTemplates(source), format, vocabulary=TINY_VOCABULARY, defaults=ChatDefaults(**defaults)
        )

    def of(self, *messages: Message, effort: str | None = None, **variables: Any) -> str:
        """The prompt's text."""
        chat = Chat(messages or (Message("user", (Text("hi"),)),), template_kwargs=variables, reasoning_effort=effort)
        return self._builder.prepare(chat).text or ""

    def thinking(self, effort: str | None = None, **variables: Any) -> bool | None:
        """Whether the prompt asks for thinking."""
        chat = Chat((Message("user", (Text("hi"),)),), template_kwargs=variables, reasoning_effort=effort)
        return self._builder.prepare(chat).thinking


@pytest.fixture
def qwen(vendor: Vendor, tokenizer: CheckpointTokenizer) -> Prompts:
    return Prompts(vendor("qwen3_8"), QwenFormat(), tokenizer)


@pytest.fixture
def glm(tokenizer: CheckpointTokenizer) -> Prompts:
    return Prompts(GLM, GlmFormat(), tokenizer)


def levels(source: str) -> EffortLevels:
    return effort_levels(ChatTemplate(source, {}, {}))


HISTORY = (
    Message("user", (Text("q1"),)),
    Message("assistant", (Thinking("R1"), Text("a1"))),
    Message("user", (Text("q2"),)),
)


# ---- levels ------------------------------------------------------------------------------------------------


@pytest.mark.requirement("T-223", "T-224", "T-225", "T-226", "T-227")
@pytest.mark.parametrize(
    ("name", "heard"),
    [
        ("qwen3_8", ["low", "low", "medium", "xhigh", "xhigh", "xhigh"]),
        (GLM, ["low", "low", "high", "high", "max", "max"]),
        (VERBATIM, ["minimal", "low", "medium", "high", "xhigh", "xhigh"]),
        ("qwen3_6", ["minimal", "low", "medium", "high", "xhigh", "xhigh"]),
    ],
    ids=["qwen3.8", "glm5.3", "verbatim", "none"],
)
def test_an_effort_is_the_nearest_level_that_the_template_names(vendor: Vendor, name: str, heard: list[str]) -> None:
    """Ties go up; a template without levels hears each as it is, and max as xhigh."""
    found = levels(name if "{" in name else vendor(name))
    assert [found.variables(effort)["reasoning_effort"] for effort in EFFORTS[1:]] == heard


@pytest.mark.parametrize(
    ("name", "switch", "on"),
    [("nemotron_3_super", "low_effort", "minimal low"), ("nemotron_3_ultra", "medium_effort", "minimal low medium")],
)
def test_a_template_with_a_switch_for_less_hears_an_effort_by_it(
    vendor: Vendor, name: str, switch: str, on: str
) -> None:
    found = levels(vendor(name))
    expected = [{switch: True} if effort in on.split() else {} for effort in EFFORTS[1:]]
    assert [found.variables(effort) for effort in EFFORTS[1:]] == expected


@pytest.mark.requirement("T-108", "T-220", "T-226", "T-232")
def test_qwen_writes_an_instruction_for_all_but_medium(qwen: Prompts) -> None:
    """Every effort is rendered; the template's default, xhigh, adds an instruction to the system prompt, medium none."""
    texts = {effort: qwen.of(effort=effort) for effort in EFFORTS}
    assert texts["xhigh"] == texts["high"] == texts["max"] == qwen.of()
    assert "Reasoning effort is set to xhigh." in texts["xhigh"]
    assert "Reasoning effort is set to low." in texts["low"]
    assert texts["low"] == texts["minimal"]
    assert texts["medium"] == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<think>\n"
    assert texts["none"].endswith("<think>\n\n</think>\n\n")


@pytest.mark.requirement("T-224", "T-225", "T-236")
def test_glm_names_low_high_and_max(glm: Prompts) -> None:
    """xhigh and max are rendered as Max; with thinking off there is no line, and an empty block."""
    lines = {effort: glm.of(effort=effort).partition("<|user|>")[0] for effort in EFFORTS}
    line = "[gMASK]<sop><|system|>Reasoning Effort: "
    assert lines["low"] == lines["minimal"] == line + "Low"
    assert lines["high"] == lines["medium"] == line + "High"
    assert lines["xhigh"] == lines["max"] == line + "Max"
    assert (
        glm.of(effort="none") == glm.of(enable_thinking=False) == "[gMASK]<sop><|user|>hi<|assistant|><think></think>"
    )
    assert glm.of() == f"{line}Max<|user|>hi<|assistant|><think>"


# ---- on and off --------------------------------------------------------------------------------------------


@pytest.mark.requirement("T-099", "T-100", "T-101")
def test_thinking_is_switched_by_either_name(qwen: Prompts) -> None:
    """Of `thinking`, values that mean nothing change nothing."""
    off = qwen.of(enable_thinking=False)
    assert off.endswith("<think>\n\n</think>\n\n")
    for thinking in (False, {"type": "disabled"}):
        assert qwen.of(thinking=thinking) == off
    ons: list[dict[str, Any]] = [{"enable_thinking": True}, {"thinking": True}, {"thinking": {"type": "enabled"}}]
    for on in ons:
        assert qwen.of(**on) == qwen.of()
    odds: list[Any] = ["off", 0, None, [], {"type": "maybe"}, {}]
    for odd in odds:
        assert qwen.of(thinking=odd) == qwen.of()
    assert qwen.of(enable_thinking=True, thinking=False) == qwen.of()


@pytest.mark.requirement("T-219", "T-231", "T-233")
def test_enable_thinking_goes_before_the_effort(qwen: Prompts) -> None:
    """An effort is heard only while thinking is on."""
    assert qwen.of(effort="none") == qwen.of(enable_thinking=False)
    assert qwen.of(effort="low", enable_thinking=False) == qwen.of(enable_thinking=False)
    assert qwen.of(effort="none", enable_thinking=True) == qwen.of()
    assert qwen.of(effort="low", enable_thinking=True) == qwen.of(effort="low")


@pytest.mark.requirement("T-221", "T-222")
def test_the_effort_is_also_read_from_the_templates_variables(qwen: Prompts) -> None:
    """The top-level field wins; a word that is no level is not passed on, for the template would raise."""
    assert qwen.of(reasoning_effort="low") == qwen.of(effort="low")
    assert qwen.of(reasoning_effort="low", effort="medium") == qwen.of(effort="medium")
    assert qwen.of(reasoning_effort="none") == qwen.of(enable_thinking=False)
    assert qwen.of(reasoning_effort="ultra") == qwen.of()


@pytest.mark.requirement("T-228", "T-229", "T-230")
def test_the_servers_effort_holds_for_requests_without_one(
    vendor: Vendor, qwen: Prompts, tokenizer: CheckpointTokenizer
) -> None:
    """It follows the same rule; without it, the template's own default holds."""
    high, none = (Prompts(vendor("qwen3_8"), QwenFormat(), tokenizer, effort=effort) for effort in ("medium", "none"))
    assert high.of() == qwen.of(effort="medium")
    assert high.of(effort="low") == qwen.of(effort="low")
    assert high.of(enable_thinking=False) == qwen.of(enable_thinking=False)
    assert none.of() == qwen.of(enable_thinking=False)
    assert none.of(enable_thinking=True) == qwen.of()


@pytest.mark.requirement("T-227", "T-235")
def test_only_an_explicit_off_that_cannot_be_rendered_is_refused(tokenizer: CheckpointTokenizer) -> None:
    """An effort always passes, and a template that knows of no thinking has none to turn off."""
    always = Prompts(ALWAYS, HermesFormat(), tokenizer)
    offs: list[dict[str, Any]] = [{"enable_thinking": False}, {"thinking": {"type": "disabled"}}]
    for off in offs:
        with pytest.raises(Unsupported, match="cannot be turned off") as caught:
            always.of(**off)
        assert (caught.value.status, caught.value.param) == (400, "chat_template_kwargs")
    assert always.of(effort="none") == always.of(effort="max") == always.of()
    never = Prompts(NEVER, HermesFormat(), tokenizer)
    assert never.of(enable_thinking=False) == never.of()


def test_gemma_thinks_only_when_it_is_told_to(vendor: Vendor, tokenizer: CheckpointTokenizer) -> None:
    gemma = Prompts(vendor("gemma4_v5"), GemmaFormat(), tokenizer)
    assert "<|think|>" not in gemma.of()
    assert gemma.of(enable_thinking=False) == gemma.of() == gemma.of(effort="none")
    assert "<|turn>system\n<|think|>\n" in gemma.of(effort="low")
    assert gemma.thinking() is None
    assert gemma.thinking("low") is True


def test_nemotron_closes_its_block_at_once_with_thinking_off(vendor: Vendor, tokenizer: CheckpointTokenizer) -> None:
    nemotron = Prompts(vendor("nemotron_3_5_lightning"), NemotronFormat(), tokenizer)
    assert nemotron.of(enable_thinking=False).endswith("<|im_start|>assistant\n<think></think>")
    assert nemotron.of(effort="high") == nemotron.of()


# ---- earlier reasoning -------------------------------------------------------------------------------------


@pytest.mark.requirement("T-237", "T-238", "T-239")
def test_glm_keeps_earlier_reasoning_unless_told_to_clear_it(glm: Prompts) -> None:
    """A new user message leaves what was rendered of earlier turns as it was, even where the template drops it."""
    kept = glm.of(*HISTORY)
    assert "<|assistant|><think>R1</think>a1<|user|>q2" in kept
    assert kept.startswith(glm.of(*HISTORY[:1]) + "R1</think>a1")
    assert "<|assistant|><think></think>a1" in glm.of(*HISTORY, clear_thinking=True)


@pytest.mark.requirement("T-240", "Y-047", "Y-048", "Y-050")
def test_reasoning_that_is_sent_is_kept_where_the_template_has_a_choice(
    vendor: Vendor, tokenizer: CheckpointTokenizer
) -> None:
    """The server's variables, and before them the request's, say otherwise. Without any reasoning nothing changes."""
    source = vendor("nemotron_3_5_lightning")
    plain = Prompts(source, NemotronFormat(), tokenizer)
    clearing = Prompts(source, NemotronFormat(), tokenizer, variables={"truncate_history_thinking": True})
    assert "<think>\nR1</think>a1" in plain.of(*HISTORY)
    assert "R1" not in plain.of(*HISTORY, truncate_history_thinking=True)
    assert "R1" not in clearing.of(*HISTORY)
    assert "R1" in clearing.of(*HISTORY, truncate_history_thinking=False)
    bare = (HISTORY[0], Message("assistant", (Text("<think>x</think>a1"),)), HISTORY[2])
    assert "<think></think>a1" in plain.of(*bare)


def test_every_switch_that_templates_have_keeps(tokenizer: CheckpointTokenizer) -> None:
    names = "preserve_thinking", "clear_thinking", "truncate_history_thinking", "drop_thinking"
    prompts = Prompts(
        "".join(f"{{{{ {name} }}}} " for name in names) + "{{ messages[0].content }}", HermesFormat(), tokenizer
    )
    assert prompts.of(*HISTORY) == "True False False False q1"
    assert prompts.of(*HISTORY, drop_thinking=True) == "True False False True q1"
    assert prompts.of(HISTORY[0]) == "    q1"
