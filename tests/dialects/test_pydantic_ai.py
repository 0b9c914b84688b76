"""An agent of pydantic-ai: its loop of calls and results, over chat, Responses and Messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

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


@asynccontextmanager
async def model(api: str, url: str) -> AsyncGenerator[Any]:
    """The agent's model; its connections are closed at the end."""
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.anthropic import AnthropicProvider
    from pydantic_ai.providers.openai import OpenAIProvider

    if api in ("chat", "responses"):
        kind = OpenAIChatModel if api == "chat" else OpenAIResponsesModel
        async with AsyncOpenAI(base_url=f"{url}/v1", api_key="x") as client:
            yield kind("local", provider=OpenAIProvider(openai_client=client))
    else:
        async with AsyncAnthropic(base_url=url, api_key="x") as client:
            yield AnthropicModel("local", provider=AnthropicProvider(anthropic_client=client))


@pytest.mark.parametrize("api", ["chat", "responses", "messages"])
@pytest.mark.parametrize("stream", [False, True])
def test_an_agent_calls_a_tool_and_goes_on(url: str, api: str, stream: bool) -> None:
    from pydantic_ai import Agent

    cities: list[str] = []

    def temperature(city: str) -> str:
        """The temperature in a city."""
        cities.append(city)
        return "3C"

    async def asked() -> str:
        async with model(api, url) as chosen:
            agent: Any = Agent(chosen, instructions="Use the tool.", tools=[temperature])
            if not stream:
                return str((await agent.run("How cold is Oslo?")).output)
            async with agent.run_stream("How cold is Oslo?") as run:
                return str(await run.get_output())

    assert asyncio.run(asked()) == "It has 3C."
    assert cities == ["Oslo"]
