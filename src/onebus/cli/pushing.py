"""Pushes lines with many of them in flight, and knows of each whether it was stored."""

import inspect
import sys
import time
from collections import deque
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from onebus.cli.input import data_of, pieces, place
from onebus.cli.output import print_error
from onebus.cli.session import attached, note, open_bus
from onebus.errors import BusError, InvalidArgument, StoreUnavailable
from onebus.objects.queue import Queue

MAX_BYTES_IN_FLIGHT: Final = 4 * 1024 * 1024
MAX_MESSAGES_IN_FLIGHT: Final = 50_000
OVERHEAD_BYTES: Final = 32
"""What a message costs beside its bytes, roughly."""
PROGRESS_AFTER_SECONDS: Final = 2.0
PROGRESS_EVERY_SECONDS: Final = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class PushOptions:
    """The options of ``onebus push``."""

    as_json: bool = False
    strict: bool = False
    delay: float = 0.0
    key: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    ttl: float


async def push_lines(
    stores: Sequence[str] | None, name: str, arguments: Sequence[str] | None, options: PushOptions
) -> bool:
    """Push arguments, or the lines of stdin, and return whether all were pushed."""
    async with open_bus(stores) as bus:
        progress = _Progress()
        queue: Queue | None = None
        try:
            async with attached(bus, name, ttl=options.ttl) as queue:
                pushing = _Pushing(queue, options, arguments)
                async for some in pieces(arguments):
                    if not await pushing.push(some):
                        break
                    progress.show(queue)
                await pushing.finish()
        finally:
            progress.clear()
            if queue is not None:
                note(f"pushed {queue.pushed} message{'' if queue.pushed == 1 else 's'}")
        return not pushing.has_failed


class _Pushing:
    """What is on its way to the queue, oldest first."""

    def __init__(self, queue: Queue, options: PushOptions, arguments: Sequence[str] | None) -> None:
        self.has_failed = False
        self._queue = queue
        self._is_json = options.as_json
        self._is_strict = options.strict
        self._extras: dict[str, Any] = {}
        if options.key is not None:
            self._extras["key"] = options.key
        if options.headers:
            self._extras["headers"] = options.headers
        if options.delay:
            self._extras["delay"] = options.delay
        self._arguments = arguments
        self._number = 0
        self._extra_bytes = OVERHEAD_BYTES + len(options.key or "") + sum(map(len, options.headers.values()))
        self._in_flight: deque[tuple[int, int, Awaitable[int]]] = deque()
        self._bytes = 0

    async def push(self, some: Sequence[bytes]) -> bool:
        """Push some lines, and return whether to go on. Waits while too much is in flight."""
        for line in some:
            self._number += 1
            if self._is_json and not line.strip():
                continue
            try:
                await self._push_one(line)
            except InvalidArgument as error:
                self.has_failed = True
                print_error(error, place(self._number, self._arguments))
                if self._is_strict:
                    return False
        return True

    async def finish(self) -> None:
        """Return when everything is stored.

        Raises:
            BusError: the first failure; which lines are concerned is told on stderr.
        """
        await self._land(until_bytes=0, until_count=0)

    async def _push_one(self, line: bytes) -> None:
        receipt = self._queue.push(data_of(line, is_json=self._is_json), **self._extras)
        if inspect.iscoroutine(receipt):
            # The queue wants to be waited for; nothing may overtake this one.
            await receipt
            return
        size = len(line) + self._extra_bytes
        self._in_flight.append((self._number, size, receipt))
        self._bytes += size
        if self._bytes > MAX_BYTES_IN_FLIGHT or len(self._in_flight) > MAX_MESSAGES_IN_FLIGHT:
            await self._land(until_bytes=MAX_BYTES_IN_FLIGHT // 2, until_count=MAX_MESSAGES_IN_FLIGHT // 2)

    async def _land(self, *, until_bytes: int, until_count: int) -> None:
        in_flight = self._in_flight
        while in_flight and (self._bytes > until_bytes or len(in_flight) > until_count):
            number, size, receipt = in_flight.popleft()
            self._bytes -= size
            try:
                await receipt
            except BusError as error:
                await self._failed(number, error)
                raise

    async def _failed(self, first: int, error: BusError) -> None:
        """Find out what else has failed, and say which lines were not stored for certain."""
        numbers = [first]
        while self._in_flight:
            number, _, receipt = self._in_flight.popleft()
            try:
                await receipt
            except BusError:
                numbers.append(number)
        certainty = "may or may not be stored" if isinstance(error, StoreUnavailable) else "not stored"
        until = f" to {numbers[-1]}" if len(numbers) > 1 else ""
        note(f"{place(first, self._arguments)}{until}: {certainty}")


class _Progress:
    """Counts on the terminal, when it takes long."""

    def __init__(self) -> None:
        self._is_shown = sys.stderr.isatty()
        self._next = time.monotonic() + PROGRESS_AFTER_SECONDS
        self._has_shown = False

    def show(self, queue: Queue) -> None:
        if self._is_shown and time.monotonic() > self._next:
            self._next = time.monotonic() + PROGRESS_EVERY_SECONDS
            self._has_shown = True
            sys.stderr.write(f"\r\x1b[Kpushed {queue.pushed:,} messages …")
            sys.stderr.flush()

    def clear(self) -> None:
        if self._has_shown:
            sys.stderr.write("\r\x1b[K")
