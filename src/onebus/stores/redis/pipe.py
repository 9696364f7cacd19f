"""One connection for many callers: commands leave together, and Redis answers them in the order of asking.

What is asked in one turn of the event loop travels in one write, and nobody waits for the answers of others before
asking. A caller that gives up leaves its answer to be read and dropped; the others do not notice.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any

from redis.asyncio.connection import AbstractConnection

from onebus.stores.redis.line import Line


class Pipe(Line):
    def __init__(self, connection: AbstractConnection) -> None:
        super().__init__(connection)
        self._outgoing: list[bytes] = []
        self._waiting: deque[asyncio.Future[Any]] = deque()

    @property
    def waiting(self) -> int:
        """How many answers are still to come."""
        return len(self._waiting)

    async def ask(self, command: bytes) -> Any:
        """Send a packed command and return its answer.

        Cancellation: the command may have been carried out.
        """
        if not self._is_ready:
            await self._ready()
        return await self._put(command)

    async def ask_together(self, commands: Sequence[bytes]) -> Any:
        """Send packed commands of which nobody else's come in between, and return the answer of the last one.

        Cancellation: the commands may have been carried out.
        """
        if not self._is_ready:
            await self._ready()
        answers = await asyncio.gather(*map(self._put, commands), return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return answers[-1]

    def _put(self, command: bytes) -> "asyncio.Future[Any]":
        """Let a command leave at the end of this turn, and return what will hold its answer."""
        if not self._outgoing:
            self._loop.call_soon(self._flush)
        self._outgoing.append(command)
        answer: asyncio.Future[Any] = self._loop.create_future()
        self._waiting.append(answer)
        return answer

    def _flush(self) -> None:
        commands, self._outgoing = self._outgoing, []
        if commands and self.is_open:
            self._transport.write(b"".join(commands) if len(commands) > 1 else commands[0])

    def _received(self, answer: Any) -> bool:
        caller = self._waiting.popleft()
        if caller.done():
            return False
        if isinstance(answer, Exception):
            caller.set_exception(answer)
        else:
            caller.set_result(answer)
        return False

    def _has_ended(self, error: Exception) -> None:
        for caller in self._waiting:
            if not caller.done():
                caller.set_exception(error)
        self._waiting.clear()
