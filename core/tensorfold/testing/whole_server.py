"""A whole application whose model says what it is told: any dialects over the real engine, with a real chat template."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import httpx

from tensorfold.chat.prompt import PromptBuilder
from tensorfold.chat.thinking import ChatDefaults
from tensorfold.compute.pages import pages_of
from tensorfold.compute.runner import Runner
from tensorfold.contracts.chat import ChatFormat, ChatTemplates
from tensorfold.contracts.dialect import Dialect
from tensorfold.contracts.engine import ModelInfo, PreparedPrompt
from tensorfold.contracts.family import Geometry
from tensorfold.engine.constraints import Constraints
from tensorfold.engine.depth import Deepest
from tensorfold.engine.engine import LocalEngine
from tensorfold.engine.settings import EngineSettings
from tensorfold.http.app import Application, create_app
from tensorfold.http.settings import HttpSettings
from tensorfold.ir import Prompt
from tensorfold.testing.scripted import TABLE, Script, ScriptedDecoder, ScriptedSession, scripted_geometry
from tensorfold.testing.serving import served
from tensorfold.testing.toy_chat import spelled
from tensorfold.testing.toy_tokenizer import ToyTokenizer

__all__ = ["CONTROLS", "WholeServer", "whole_server"]

CONTROLS = ("<|im_end|>", "<|im_start|>", "<|endoftext|>")
"""Of ChatML; the first one ends a reply."""
LANES = 4
CHUNK = 128


class WholeServer:
    """An application, and what its model was shown."""

    def __init__(
        self,
        reply: Callable[[str], str],
        *,
        template: str,
        format: ChatFormat,
        dialects: Sequence[Dialect],
        window: int = 8192,
        defaults: ChatDefaults | None = None,
        settings: HttpSettings | None = None,
    ) -> None:
        """`reply`: from the prompt's text to what the model says, its end token left out.

        The model has a draft head whose every third guess is wrong.
        """
        self._reply = reply
        self._tokenizer = ToyTokenizer(words=("yes", "no"), control=CONTROLS)
        self._end = self._tokenizer.ids(CONTROLS[0])[0]
        self.prompts: list[str] = []
        """The text of each prompt that was prepared, in order."""
        geometry = scripted_geometry(vocabulary=self._tokenizer.size, window=window, stop_ids=frozenset({self._end}))
        self._builder = PromptBuilder(
            self._tokenizer,
            ChatTemplates(template),
            format,
            vocabulary=geometry.vocabulary,
            window=window,
            defaults=defaults,
        )
        self._decoder = ScriptedDecoder(geometry, (), wrong=3)
        self.engine = self._engine(geometry, format)
        self.model = _model(geometry, template)
        self.client = httpx.Client()
        """For the server, once it runs."""
        self.app: Application = create_app(
            engine=self.engine,
            model=self.model,
            dialects=dialects,
            tokenizer=self._tokenizer,
            settings=settings,
        )

    def _engine(self, geometry: Geometry, format: ChatFormat) -> LocalEngine:
        runner: Runner[Any] = Runner(
            self._decoder,
            ScriptedSession(CHUNK),
            geometry,
            lanes=LANES,
            pages={TABLE: pages_of(geometry.window) * LANES},
            identity="scripted",
        )
        gates = Constraints(tokenizer=self._tokenizer, chat=format, geometry=geometry, frame=self._builder.call_frame)
        return LocalEngine(
            runner,
            prompts=self,
            tokenizer=self._tokenizer,
            chat=format,
            depth=Deepest(),
            settings=EngineSettings(),
            gates=gates,
        )

    def prepare(self, prompt: Prompt) -> PreparedPrompt:
        """Implements `PromptSource`; the model learns what it shall say behind this prompt."""
        prepared = self._builder.prepare(prompt)
        text = prepared.text if prepared.text is not None else ""
        self.prompts.append(text)
        self._decoder.learn(Script(prepared.ids, spelled(self._tokenizer, self._reply(text))), self._end)
        return prepared

    def post(self, path: str, body: Mapping[str, Any] | bytes) -> httpx.Response:
        """One request, whatever its status."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.client.post(path, content=data, headers={"content-type": "application/json"})

    def told(self, path: str, body: Mapping[str, Any]) -> Any:
        """The JSON of one request that is served."""
        answered = self.post(path, body)
        assert answered.status_code == 200, answered.text
        return answered.json()


def _model(geometry: Geometry, template: str) -> ModelInfo:
    return ModelInfo(
        id="scripted",
        aliases=(),
        created=1_790_000_000,
        family="scripted",
        backend="scripted",
        window=geometry.window,
        trained_window=2 * geometry.window,
        vocabulary=geometry.vocabulary,
        parameters=1,
        chat_template=template,
        lanes=LANES,
    )


@contextmanager
def whole_server(reply: str | Callable[[str], str], **fields: Any) -> Generator[WholeServer]:
    """A `WholeServer` behind a socket; it has ended, threads and all, when the block is left."""
    server = WholeServer((lambda _: reply) if isinstance(reply, str) else reply, **fields)
    server.engine.start()
    try:
        with served(server.app) as url, httpx.Client(base_url=url, timeout=30) as client:
            server.client = client
            yield server
    finally:
        asyncio.run(server.engine.close(0))
        server.app.close()
