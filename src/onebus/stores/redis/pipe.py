"""One connection for many callers: commands leave together, and Redis answers them in the order of asking.

What is asked in one turn of the event loop travels in one write, and nobody waits for the answers of others before
asking. A caller that gives up leaves its answer to be read and dropped; the others do not notice.
"""

import asyncio
from collections import deque
from typing import Any

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError


class Pipe:
    """A connection that is read all the time, so that its end is noticed at once and not by the next command."""

    def __init__(self, connection: AbstractConnection) -> None:
        self._connection = connection
        self._outgoing: list[bytes] = []
        self._asked = asyncio.Event()
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._ended: BaseException | None = None
        self._tasks = [
            asyncio.create_task(self._write(), name="onebus-redis-write"),
            asyncio.create_task(self._read(), name="onebus-redis-read"),
        ]

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
        if self._ended is not None:
            raise RedisConnectionError("the connection has ended") from self._ended
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._outgoing.append(command)
        self._waiting.append(answer)
        self._asked.set()
        return await answer

    async def close(self) -> None:
        """End the connection; what is still asked fails."""
        self._end(RedisConnectionError("the connection was closed"))
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._connection.disconnect(nowait=True)

    async def _write(self) -> None:
        try:
            while True:
                await self._asked.wait()
                self._asked.clear()
                commands, self._outgoing = self._outgoing, []
                await self._connection.send_packed_command(commands, check_health=False)
        except Exception as error:
            self._end(error)

    async def _read(self) -> None:
        try:
            while True:
                try:
                    answer = await self._connection.read_response()
                except ResponseError as refusal:
                    self._answered(refusal)
                else:
                    self._answered(answer)
        except Exception as error:
            self._end(error)

    def _answered(self, answer: Any) -> None:
        caller = self._waiting.popleft()
        if caller.done():
            return
        if isinstance(answer, Exception):
            caller.set_exception(answer)
        else:
            caller.set_result(answer)

    def _end(self, error: Exception) -> None:
        if self._ended is not None:
            return
        self._ended = error
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()
        for caller in self._waiting:
            if not caller.done():
                caller.set_exception(error)
        self._waiting.clear()
