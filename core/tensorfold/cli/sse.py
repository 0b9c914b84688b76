"""Server-sent events, read as they come."""

from __future__ import annotations

import codecs
from collections.abc import AsyncGenerator, AsyncIterator

__all__ = ["data_of"]


async def data_of(chunks: AsyncIterator[bytes]) -> AsyncGenerator[str]:
    """The data of each event; comments and other fields are left out. Chunks may be cut anywhere."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    pending = ""
    data: list[str] = []
    async for chunk in chunks:
        pending += decoder.decode(chunk)
        *lines, pending = pending.split("\n")
        for line in lines:
            line = line.removesuffix("\r")
            field, _, value = line.partition(":")
            if field == "data":
                data.append(value.removeprefix(" "))
            elif not line and data:
                yield "\n".join(data)
                data.clear()
