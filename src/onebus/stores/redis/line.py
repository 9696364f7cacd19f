"""A connection that redis-py has opened and logged in, and whose bytes come here from then on."""

import asyncio
from abc import ABC, abstractmethod
from typing import Any, Final, cast

import hiredis
from redis._parsers.base import BaseParser
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ConnectionError as RedisConnectionError

MAX_UNSENT_BYTES: Final = 4 * 1024 * 1024
"""Callers wait while Redis takes so little that more than this has gathered."""


class Line(asyncio.Protocol, ABC):
    """Read all the time, so that its end is noticed at once and not by the next command.

    What Redis says is taken in the turn of the event loop in which it arrives: nobody has to be woken to read it.
    """

    def __init__(self, connection: AbstractConnection) -> None:
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._parser = hiredis.Reader(protocolError=RedisConnectionError, replyError=BaseParser.parse_error)
        self._ended: Exception | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        writer = connection._writer
        if writer is None:
            raise RedisConnectionError("the connection has ended")
        self._transport = cast("asyncio.Transport", writer.transport)
        self._transport.set_write_buffer_limits(high=MAX_UNSENT_BYTES)
        self._transport.set_protocol(self)

    @property
    def is_open(self) -> bool:
        return self._ended is None

    async def close(self) -> None:
        """End the connection; what is still asked fails."""
        self._end(RedisConnectionError("the connection was closed"))
        await self._connection.disconnect(nowait=True)

    @property
    def _is_ready(self) -> bool:
        """Whether something may be sent now; if not, wait for `_ready`."""
        return self._ended is None and self._writable.is_set()

    async def _ready(self) -> None:
        """Return when there is room for more to send."""
        await self._writable.wait()
        if self._ended is not None:
            raise RedisConnectionError("the connection has ended") from self._ended

    def _end(self, error: Exception) -> None:
        if self._ended is None:
            self._ended = error
            self._writable.set()
            self._transport.abort()
            self._has_ended(error)

    @abstractmethod
    def _received(self, answer: Any) -> bool:
        """Take one thing that Redis says, be it an error. Return whether others have to run before the next one."""

    @abstractmethod
    def _has_ended(self, error: Exception) -> None:
        """Hear, once, that nothing more comes."""

    # What asyncio calls

    def data_received(self, data: bytes) -> None:
        self._parser.feed(data)
        self._read()

    def _read(self) -> None:
        gets, received = self._parser.gets, self._received
        try:
            while (answer := gets()) is not False:
                if received(answer):
                    self._loop.call_soon(self._read)
                    return
        except (RedisConnectionError, LookupError, ValueError) as error:
            self._end(RedisConnectionError(f"what was received makes no sense: {error!r}"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(RedisConnectionError(str(exc) if exc else "Connection closed by server."))

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()
