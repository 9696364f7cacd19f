"""Tells the server which messages are done: those of one moment in one request."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from onebus.http.exchange import Exchange, WordsOfMany
from onebus.http.message import HttpMessage

MAX_AT_ONCE: Final = 1000

Ask = Callable[[Exchange[set[int]]], Awaitable[set[int]]]
"""Asks the server, for as long as it is away."""


class Reports:
    """Collects what is done while a report is on its way, and sends it with the next one."""

    def __init__(self, words: WordsOfMany, ask: Ask) -> None:
        self._words = words
        self._ask = ask
        self._waiting: list[tuple[HttpMessage, asyncio.Future[bool]]] = []
        self._sending: asyncio.Task[None] | None = None

    async def done(self, message: HttpMessage) -> bool:
        """Report a message as done, and return whether it was still held.

        Raises:
            RequestFailed: the server refuses the report.
        """
        outcome: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append((message, outcome))
        if self._sending is None:
            self._sending = asyncio.create_task(self._send(), name="onebus-reports")
        return await outcome

    async def close(self) -> None:
        """Report nothing more."""
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)

    async def _send(self) -> None:
        while self._waiting:
            reported, self._waiting = self._waiting[:MAX_AT_ONCE], self._waiting[MAX_AT_ONCE:]
            try:
                lost = await self._ask(self._words.done_many([message for message, _ in reported]))
            except Exception as error:
                for _, outcome in reported:
                    if not outcome.done():
                        outcome.set_exception(error)
            else:
                for message, outcome in reported:
                    if not outcome.done():
                        outcome.set_result(message.id not in lost)
        self._sending = None
