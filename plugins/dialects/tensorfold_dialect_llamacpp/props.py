"""`GET /props`: what clients of llama-server ask to learn the window and the abilities of the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tensorfold.contracts.engine import ModelInfo, Services

if TYPE_CHECKING:
    import falcon.asgi

__all__ = ["Props"]


class GenerationSettings(msgspec.Struct):
    """Of a slot."""

    n_ctx: int


class Modalities(msgspec.Struct):
    """What a prompt may hold besides text."""

    vision: bool
    video: bool = False
    audio: bool = False


class PropsBody(msgspec.Struct):
    """The answer."""

    default_generation_settings: GenerationSettings
    total_slots: int
    model_alias: str
    model_path: str
    modalities: Modalities
    chat_template: str
    bos_token: str
    eos_token: str
    build_info: str
    is_sleeping: bool = False

    @staticmethod
    def of(model: ModelInfo) -> PropsBody:
        """Of the served model."""
        return PropsBody(
            default_generation_settings=GenerationSettings(model.window),
            total_slots=max(model.lanes, 1),
            model_alias=model.id,
            model_path=model.path,
            modalities=Modalities(vision="vision" in model.capabilities),
            chat_template=model.chat_template or "",
            bos_token=model.bos_token or "",
            eos_token=model.eos_token or "",
            build_info=f"tensorfold {model.backend}",
        )


class Props:
    """Shows the served model."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def on_get(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        """The properties."""
        resp.content_type = "application/json"
        resp.data = msgspec.json.encode(PropsBody.of(self._services.model))
