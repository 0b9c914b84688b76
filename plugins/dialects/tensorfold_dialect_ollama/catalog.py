"""`/api/tags`, `/api/ps`, `/api/version` and `/api/show`: the one model that is there, as Ollama describes models."""

from __future__ import annotations

import datetime
import hashlib
from typing import TYPE_CHECKING

import msgspec

from tensorfold.contracts.dialect import DecodeContext, Inquiry
from tensorfold.contracts.engine import ModelInfo, Services
from tensorfold.errors import DecodeError
from tensorfold.ir import JSON
from tensorfold.wire import BodyDecoder
from tensorfold_dialect_ollama.errors import OllamaErrors

if TYPE_CHECKING:
    import falcon.asgi

__all__ = ["API_VERSION", "ShowBody", "ShowCodec", "Tags", "Version"]

API_VERSION = "0.12.6"
"""Of Ollama's API that is spoken here; clients refuse servers that are too old."""

JSON_TYPE = "application/json"
FAR = "2318-01-01T00:00:00Z"
"""When the model is unloaded: never."""


class Details(msgspec.Struct):
    """What kind of model it is."""

    family: str
    families: list[str]
    parameter_size: str
    quantization_level: str = ""
    parent_model: str = ""
    format: str = "safetensors"

    @staticmethod
    def of(model: ModelInfo) -> Details:
        """Of the served one."""
        return Details(model.family, [model.family], _size(model.parameters), format=_format(model.path))


def _format(path: str) -> str:
    return "gguf" if path.endswith(".gguf") else "safetensors"


def _size(parameters: int) -> str:
    """`134.5M`, `27.0B`."""
    return f"{parameters / 1e9:.1f}B" if parameters >= 1e9 else f"{parameters / 1e6:.1f}M"


class Entry(msgspec.Struct):
    """One name of the model."""

    name: str
    model: str
    modified_at: str
    size: int
    digest: str
    details: Details


class RunningEntry(Entry):
    """The same, loaded."""

    expires_at: str = FAR
    size_vram: int = 0
    context_length: int = 0


def _entry(model: ModelInfo, name: str) -> Entry:
    digest = hashlib.sha256(f"{model.id}|{model.parameters}|{model.weights_bytes}".encode()).hexdigest()
    return Entry(name, name, _moment(model), model.weights_bytes, digest, Details.of(model))


def _moment(model: ModelInfo) -> str:
    moment = datetime.datetime.fromtimestamp(model.created, datetime.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


class Tags:
    """`GET /api/tags`, and with `running` `GET /api/ps`."""

    def __init__(self, services: Services, *, running: bool) -> None:
        self._services = services
        self._running = running

    async def on_get(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        """The model under each of its names; what is loaded under its own alone."""
        model = self._services.model
        entries: list[Entry] = [_entry(model, name) for name in (model.id, *model.aliases)]
        if self._running:
            one = msgspec.structs.asdict(entries[0])
            entries = [RunningEntry(**one, size_vram=model.weights_bytes, context_length=model.window)]
        resp.content_type = JSON_TYPE
        resp.data = msgspec.json.encode({"models": entries})

    on_head = on_get


class Version:
    """`GET /api/version`."""

    async def on_get(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        """The version of the API."""
        resp.content_type = JSON_TYPE
        resp.data = msgspec.json.encode({"version": API_VERSION})

    on_head = on_get


class ShowBody(msgspec.Struct):
    """Which model; any name is that of the loaded one."""

    model: str | None = None
    name: str | None = None
    """The older name of `model`."""


class Shown(msgspec.Struct):
    """The answer."""

    modelfile: str
    parameters: str
    template: str
    details: Details
    model_info: dict[str, JSON]
    capabilities: list[str]
    modified_at: str


class ShowCodec(OllamaErrors):
    """Decodes `POST /api/show`."""

    def __init__(self) -> None:
        self._bodies = BodyDecoder(ShowBody)

    def decode(self, body: bytes, context: DecodeContext) -> Inquiry:
        """Which model to show."""
        wanted = self._bodies.decode(body)
        if not (wanted.model or wanted.name):
            raise DecodeError("model is missing", param="model")
        return ShowInquiry()


class ShowInquiry:
    """The served model."""

    async def answer(self, services: Services) -> bytes:
        """Its description."""
        model = services.model
        info: dict[str, JSON] = {
            "general.architecture": model.family,
            "general.parameter_count": model.parameters,
            f"{model.family}.context_length": model.window,
            f"{model.family}.vocab_size": model.vocabulary,
        }
        if model.width:
            info[f"{model.family}.embedding_length"] = model.width
        able = [name for name in ("tools", "thinking", "vision") if name in model.capabilities]
        shown = Shown(
            modelfile="",
            parameters=f"num_ctx {model.window}",
            template=model.chat_template or "",
            details=Details.of(model),
            model_info=info,
            capabilities=["completion", *able],
            modified_at=_moment(model),
        )
        return msgspec.json.encode(shown)
