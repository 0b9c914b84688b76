"""The one resource behind every endpoint that asks and generates nothing."""

from __future__ import annotations

import asyncio

import falcon.asgi

from tensorfold.contracts.dialect import Inquiry, InquiryEndpoint
from tensorfold.http.admitted import admitted_services
from tensorfold.http.connection import ClientGone
from tensorfold.http.generation import Serving, check_media_type, named_as_in
from tensorfold.http.visit import Visit

__all__ = ["Answering"]


class Answering:
    """Decodes over the endpoint's codec and answers; an answer that nobody waits for any more is given up."""

    def __init__(self, endpoint: InquiryEndpoint, serving: Serving) -> None:
        self._codec = endpoint.codec
        self._serving = serving

    async def on_post(self, req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        """One inquiry."""
        visit = Visit.of(req.scope)
        self._serving.check_open()
        check_media_type(req)
        body = await visit.connection.body()
        visit.errors = self._codec
        inquiry = await self._serving.decode(self._codec.decode, body, visit)
        resp.content_type = self._codec.media_type
        with named_as_in(inquiry):
            resp.data = await self._answer(inquiry, visit)

    async def _answer(self, inquiry: Inquiry, visit: Visit) -> bytes:
        left = False
        services = admitted_services(self._serving.services, self._serving.audience, visit)
        task = asyncio.ensure_future(inquiry.answer(services))

        def hang_up() -> None:
            nonlocal left
            left = True
            task.cancel()

        visit.connection.watch(hang_up)
        try:
            return await task
        except asyncio.CancelledError:
            task.cancel()
            if left:
                raise ClientGone from None
            raise
