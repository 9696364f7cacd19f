"""The coalescing writer: many small appends become few large ones, and nobody waits for a timer.

While a batch of a log is on its way to the store, further appends to that log gather; when it has arrived
they leave together as the next batch. A quiet producer therefore pays one round trip, and a busy one
pays one round trip for all that happened during the last one: group commit, for every store.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass

from onebus.errors import PayloadTooLarge, StoreClosed
from onebus.log.batch import Entry, encode

AppendBatch = Callable[[str, bytes], Awaitable[int]]
"""Stores a batch in a log and returns the id of its first message."""


@dataclass(frozen=True, slots=True)
class WriterLimits:
    max_message_bytes: int = 1024 * 1024
    """The largest message that is accepted: value, key and headers together."""
    max_batch_messages: int = 10_000
    max_batch_bytes: int = 1024 * 1024
    """A batch is closed before it exceeds either limit; what is left over waits for the next one."""


@dataclass(slots=True)
class _Call:
    """Messages of one caller that must go into one batch, and the future that gets their first id."""

    entries: Sequence[Entry]
    size: int
    stored: asyncio.Future[int]


class LogWriter:
    """Appends messages to logs, in as few batches as the pace of the store allows.

    Order: ids follow the order of the calls, per log. Each caller waits until its own messages are stored,
    so what gathers here is bounded by what the callers hold, and what leaves at once by the limits.
    """

    def __init__(
        self,
        append: AppendBatch,
        *,
        clock: Callable[[], int],
        limits: WriterLimits | None = None,
        compress: bool = False,
    ) -> None:
        self._append = append
        self._clock = clock
        self._limits = limits or WriterLimits()
        self._compress = compress
        self._waiting: dict[str, deque[_Call]] = {}
        self._lanes: dict[str, asyncio.Task[None]] = {}
        self._closed = False

    async def append(self, log: str, entry: Entry) -> int:
        """Append one message and return its id.

        Cancellation: the message is not stored if its batch has not left yet; otherwise it may be.

        Raises:
            PayloadTooLarge: the message exceeds the limit; nothing is stored.
            StoreError: the batch that held the message failed; only its own callers hear of that.
        """
        return await self._enqueue(log, (entry,), self._checked_size(entry))

    async def append_many(self, log: str, entries: Sequence[Entry]) -> list[int]:
        """Append messages and return their ids: ascending, and dense within each batch that the list fills.

        Cancellation and errors are those of `append`; what did not leave before one of them is not stored.
        """
        chunks = list(self._chunks(entries))
        futures = [self._enqueue(log, chunk, size) for chunk, size in chunks]
        ids: list[int] = []
        try:
            for future, (chunk, _) in zip(futures, chunks, strict=True):
                first_id = await future
                ids.extend(range(first_id, first_id + len(chunk)))
        finally:
            for future in futures:
                future.cancel()
        return ids

    async def close(self) -> None:
        """Refuse new messages and return when those already accepted are stored or have failed."""
        self._closed = True
        while self._lanes:
            await asyncio.wait(self._lanes.values())

    def _checked_size(self, entry: Entry) -> int:
        size = len(entry.value)
        if entry.key is not None:
            size += len(entry.key)
        if entry.headers:
            size += sum(len(name) + len(text) for name, text in entry.headers.items())
        if size > self._limits.max_message_bytes:
            raise PayloadTooLarge(
                f"A message of {size} bytes exceeds the limit of {self._limits.max_message_bytes}; "
                "send less, or raise max_message_bytes."
            )
        return size

    def _chunks(self, entries: Sequence[Entry]) -> Iterator[tuple[Sequence[Entry], int]]:
        sizes = [self._checked_size(entry) for entry in entries]
        start, total = 0, 0
        for index, size in enumerate(sizes):
            if index > start and not self._fits(index - start + 1, total + size):
                yield entries[start:index], total
                start, total = index, 0
            total += size
        if start < len(entries):
            yield entries[start:], total

    def _fits(self, count: int, size: int) -> bool:
        return count <= self._limits.max_batch_messages and size <= self._limits.max_batch_bytes

    def _enqueue(self, log: str, entries: Sequence[Entry], size: int) -> asyncio.Future[int]:
        if self._closed:
            raise StoreClosed("The writer is closed and accepts no more messages.")
        call = _Call(entries, size, asyncio.get_running_loop().create_future())
        self._waiting.setdefault(log, deque()).append(call)
        if log not in self._lanes:
            self._lanes[log] = asyncio.create_task(self._drain(log), name=f"onebus-writer {log}")
        return call.stored

    async def _drain(self, log: str) -> None:
        try:
            while calls := self._take(self._waiting[log]):
                await self._store(log, calls)
        finally:
            # Only a cancelled lane, or one whose code is wrong, leaves callers behind: they must not hang.
            for call in self._waiting.pop(log):
                call.stored.cancel()
            del self._lanes[log]

    def _take(self, waiting: deque[_Call]) -> list[_Call]:
        calls: list[_Call] = []
        count, size = 0, 0
        while waiting:
            call = waiting[0]
            if call.stored.cancelled():
                waiting.popleft()
                continue
            count += len(call.entries)
            size += call.size
            if calls and not self._fits(count, size):
                break
            calls.append(waiting.popleft())
        return calls

    async def _store(self, log: str, calls: Sequence[_Call]) -> None:
        entries = [entry for call in calls for entry in call.entries]
        try:
            first_id = await self._append(log, encode(entries, now_ms=self._clock(), compress=self._compress))
        except BaseException as error:
            for call in calls:
                if not call.stored.done():
                    call.stored.set_exception(error) if isinstance(error, Exception) else call.stored.cancel()
            if not isinstance(error, Exception):
                raise
            return
        for call in calls:
            if not call.stored.done():
                call.stored.set_result(first_id)
            first_id += len(call.entries)
