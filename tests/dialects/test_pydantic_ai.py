"""An agent of pydantic-ai: its loop of calls and results, over Responses and over Messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tensorfold.http import create_app
from tensorfold.ir import (
    Chat,
    Finished,
    Queued,
    Request,
    Stopped,
    Text,
    TextDelta,
    Timings,
    ToolCallDelta,
    ToolResult,
    Usage,
)
from tensorfold.testing.dialects import MODEL
from tensorfold.testing.scripted_engine import ScriptedEngine, ScriptItem
from tensorfold.testing.serving import served
from tensorfold_dialect_anthropic import anthropic_dialect
from tensorfold_dialect_openai import openai_dialect

pytest.importorskip("pydantic_ai")


def script(request: Request) -> Iterator[ScriptItem]:
    """Calls the tool, then says what it gave back."""
    assert isinstance(request.prompt, Chat)
    yield Queued(5)
    results = [part for part in request.prompt.messages[-1].parts if isinstance(part, ToolResult)]
    if results:
        text = "".join(part.text for part in results[0].parts if isinstance(part, Text))
        yield from (TextDelta(0, f"It has {text}."), Stopped(0, "end"))
    else:
        (tool,) = request.prompt.tools
        yield ToolCallDelta(0, 0, "call_1", tool.name, "")
        yield ToolCallDelta(0, 0, None, None, '{"city": "Oslo"}')
        yield Stopped(0, "tool_calls")
    yield Finished(Usage(5, 3), Timings(), ("00",))


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    app = create_app(
        engine=ScriptedEngine(MODEL, script), model=MODEL, dialects=[openai_dialect(), anthropic_dialect()]
    )
    with served(app) as url:
        yield url


def model(api: str, url: str) -> Any:
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.models.openai import OpenAIResponsesModel
    from pydantic_ai.providers.anthropic import AnthropicProvider
    from pydantic_ai.providers.openai import OpenAIProvider

    if api == "responses":
        return OpenAIResponsesModel("local", provider=OpenAIProvider(base_url=f"{url}/v1", api_key="x"))
    return AnthropicModel("local", provider=AnthropicProvider(base_url=url, api_key="x"))


@pytest.mark.parametrize("api", ["responses", "messages"])
@pytest.mark.parametrize("stream", [False, True])
def test_an_agent_calls_a_tool_and_goes_on(url: str, api: str, stream: bool) -> None:
    import asyncio

    from pydantic_ai import Agent

    cities: list[str] = []

    def temperature(city: str) -> str:
        """The temperature in a city."""
        cities.append(city)
        return "3C"

    agent: Any = Agent(model(api, url), instructions="Use the tool.", tools=[temperature])

    async def streamed() -> str:
        async with agent.run_stream("How cold is Oslo?") as run:
            return str(await run.get_output())

    async def whole() -> str:
        return str((await agent.run("How cold is Oslo?")).output)

    assert asyncio.run(streamed() if stream else whole()) == "It has 3C."
    assert cities == ["Oslo"]
