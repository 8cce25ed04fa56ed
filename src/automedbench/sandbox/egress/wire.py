"""Wire format, HTTP/1.1 over asyncio streams: h11 is the grammar, strict on what it reads, these are the pipes."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import h11

BLOCK = 256 * 1024
MAX_HEAD = 32 * 1024
IDLE_S = 600.0
HEAD_S = 60.0


class Closed(Exception):
    """The other side ended in the middle of a message, or said nothing for too long."""


class Wire:
    """One HTTP connection, as server or as client."""

    def __init__(self, role: type[Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.http = h11.Connection(role, max_incomplete_event_size=MAX_HEAD)
        self.reader, self.writer = reader, writer

    async def receive(self, timeout: float = IDLE_S) -> h11.Event:
        """The next event; raises Closed, or h11.RemoteProtocolError for what is not HTTP."""
        while True:
            event = self.http.next_event()
            if event is h11.NEED_DATA:
                try:
                    async with asyncio.timeout(timeout):
                        self.http.receive_data(await self.reader.read(BLOCK))
                except (OSError, TimeoutError) as error:
                    raise Closed(type(error).__name__) from error
            elif isinstance(event, h11.ConnectionClosed) or event is h11.PAUSED:
                raise Closed("the connection ended")
            else:
                assert not isinstance(event, type)
                return event

    async def send(self, event: h11.Event) -> None:
        """Write one event and wait until there is room for more; raises Closed."""
        await self.write(self.http.send(event))

    async def write(self, data: bytes | None) -> None:
        """Write bytes as they are."""
        if not data:
            return
        try:
            async with asyncio.timeout(IDLE_S):
                self.writer.write(data)
                await self.writer.drain()
        except (OSError, TimeoutError) as error:
            raise Closed(type(error).__name__) from error

    async def body(self, limit: int) -> bytes | None:
        """The rest of a message's body, or None when it is longer than ``limit``."""
        whole = bytearray()
        while True:
            event = await self.receive()
            if isinstance(event, h11.Data):
                whole += event.data
                if len(whole) > limit:
                    return None
            elif isinstance(event, h11.EndOfMessage):
                return bytes(whole)

    def close(self) -> None:
        """Drop the connection."""
        close(self.writer)


def close(writer: asyncio.StreamWriter) -> None:
    """Close a stream without waiting for the other side."""
    with contextlib.suppress(OSError, RuntimeError):
        writer.close()
