"""Handles messages as they come: takes them, keeps their leases alive, and reports what became of them."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

from onebus.errors import BusError, InvalidArgument, ServerUnavailable
from onebus.http.exchange import Exchange, WordsOfMany
from onebus.http.message import HttpMessage
from onebus.http.reports import Reports

T = TypeVar("T")

WAIT_SECONDS: Final = 30.0
"""How long the server may hold a request when there are no messages."""
MAX_CONCURRENCY: Final = 1000
FIRST_PAUSE_SECONDS: Final = 0.1
LONGEST_PAUSE_SECONDS: Final = 5.0

_log = logging.getLogger("onebus")

Handler = Callable[[HttpMessage], Awaitable[Any]]


class Server(Protocol):
    """What answers an exchange."""

    async def ask(self, exchange: Exchange[T]) -> T: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkSettings:
    """How to work; see `onebus.http.Consumer.work`."""

    concurrency: int
    timeout: float
    retry_delay: float
    grace: float

    def __post_init__(self) -> None:
        if not 1 <= self.concurrency <= MAX_CONCURRENCY:
            raise InvalidArgument(f"concurrency must be from 1 to {MAX_CONCURRENCY}, but is {self.concurrency}.")
        if not self.timeout > 0 or not self.retry_delay >= 0 or not self.grace >= 0:
            raise InvalidArgument("timeout must be greater than 0 seconds, retry_delay and grace 0 seconds or more.")


class Worker:
    """Works until it is cancelled."""

    def __init__(self, server: Server, words: WordsOfMany, handler: Handler, settings: WorkSettings) -> None:
        self._server = server
        self._words = words
        self._handler = handler
        self._settings = settings
        self._reports = Reports(words, self._patiently)
        self._free = asyncio.Semaphore(settings.concurrency)
        self._running: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Take and handle messages for ever.

        Raises:
            RequestFailed: the server refuses to hand out messages, for example for want of a secret.
        """
        try:
            while True:
                slots = await self._free_slots()
                messages: list[HttpMessage] = []
                try:
                    messages = await self._patiently(self._words.take(slots, self._settings.timeout, WAIT_SECONDS))
                finally:
                    for _ in range(slots - len(messages)):
                        self._free.release()
                for message in messages:
                    task = asyncio.create_task(self._handle(message), name=f"onebus-handles {message.id}")
                    self._running.add(task)
                    task.add_done_callback(self._ended)
        finally:
            await self._finish()

    async def _free_slots(self) -> int:
        """Wait until another message may be handled, and return how many may."""
        await self._free.acquire()
        slots = 1
        while not self._free.locked():
            await self._free.acquire()
            slots += 1
        return slots

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._free.release()

    async def _finish(self) -> None:
        """Let handlers end; what does not in time is given back."""
        if self._running:
            _, late = await asyncio.wait(self._running, timeout=self._settings.grace)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        await self._reports.close()

    async def _handle(self, message: HttpMessage) -> None:
        extending = asyncio.create_task(self._keep(message), name=f"onebus-keeps {message.id}")
        try:
            await self._handler(message)
        except asyncio.CancelledError:
            await self._report(message, self._patiently(self._words.release(message, 0.0)))
            raise
        except Exception:
            _log.exception("message %s could not be handled; it is given back", message.id)
            await self._report(message, self._patiently(self._words.release(message, self._settings.retry_delay)))
        else:
            await self._report(message, self._reports.done(message))
        finally:
            extending.cancel()
            await asyncio.gather(extending, return_exceptions=True)

    async def _report(self, message: HttpMessage, report: Awaitable[bool]) -> None:
        try:
            async with asyncio.timeout(self._settings.timeout):
                if not await report:
                    _log.warning("message %s was not held any more; it may be handled again", message.id)
        except (TimeoutError, BusError) as error:
            _log.warning("the server could not be told about message %s: %s", message.id, error)

    async def _keep(self, message: HttpMessage) -> None:
        timeout = self._settings.timeout
        while True:
            await asyncio.sleep(timeout / 3)
            try:
                if not await self._patiently(self._words.extend(message, timeout)):
                    return
            except BusError as error:
                _log.warning("the lease of message %s could not be extended: %s", message.id, error)
                return

    async def _patiently(self, exchange: Exchange[T]) -> T:
        """Ask again and again while the server is away."""
        pause = FIRST_PAUSE_SECONDS
        while True:
            try:
                return await self._server.ask(exchange)
            except ServerUnavailable as error:
                _log.debug("%s; trying again", error)
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
