"""One connection for many callers: commands leave together, and Redis answers them in the order of asking.

What is asked in one turn of the event loop travels in one write, and nobody waits for the answers of others before
asking. A caller that gives up leaves its answer to be read and dropped; the others do not notice.
"""

import asyncio
from collections import deque
from typing import Any, Final, cast

import hiredis
from redis._parsers.base import BaseParser
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ConnectionError as RedisConnectionError

MAX_UNSENT_BYTES: Final = 4 * 1024 * 1024
"""Callers wait while Redis takes so little that more than this has gathered."""


class Pipe(asyncio.Protocol):
    """A connection that redis-py has opened and logged in, and whose bytes come here from then on.

    It is read all the time, so that its end is noticed at once and not by the next command.
    """

    def __init__(self, connection: AbstractConnection) -> None:
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._parser = hiredis.Reader(protocolError=RedisConnectionError, replyError=BaseParser.parse_error)
        self._outgoing: list[bytes] = []
        self._waiting: deque[asyncio.Future[Any]] = deque()
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

    @property
    def waiting(self) -> int:
        """How many answers are still to come."""
        return len(self._waiting)

    async def ask(self, command: bytes) -> Any:
        """Send a packed command and return its answer.

        Cancellation: the command may have been carried out.
        """
        if not self._writable.is_set():
            await self._writable.wait()
        if self._ended is not None:
            raise RedisConnectionError("the connection has ended") from self._ended
        if not self._outgoing:
            self._loop.call_soon(self._flush)
        self._outgoing.append(command)
        answer: asyncio.Future[Any] = self._loop.create_future()
        self._waiting.append(answer)
        return await answer

    async def close(self) -> None:
        """End the connection; what is still asked fails."""
        self._end(RedisConnectionError("the connection was closed"))
        await self._connection.disconnect(nowait=True)

    def _flush(self) -> None:
        commands, self._outgoing = self._outgoing, []
        if commands and self._ended is None:
            self._transport.write(b"".join(commands) if len(commands) > 1 else commands[0])

    def _end(self, error: Exception) -> None:
        if self._ended is not None:
            return
        self._ended = error
        self._writable.set()
        self._transport.abort()
        for caller in self._waiting:
            if not caller.done():
                caller.set_exception(error)
        self._waiting.clear()

    # What asyncio calls

    def data_received(self, data: bytes) -> None:
        parser, waiting = self._parser, self._waiting
        parser.feed(data)
        try:
            while (answer := parser.gets()) is not False:
                caller = waiting.popleft()
                if caller.done():
                    continue
                if isinstance(answer, Exception):
                    caller.set_exception(answer)
                else:
                    caller.set_result(answer)
        except (RedisConnectionError, IndexError) as error:
            self._end(RedisConnectionError(f"what was received is not an answer: {error}"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(RedisConnectionError(str(exc) if exc else "Connection closed by server."))

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()
