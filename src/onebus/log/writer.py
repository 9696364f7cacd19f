"""The coalescing writer: many small appends become few large ones, and nobody waits for a timer.

While a batch of a log is on its way to the store, further appends to that log gather; when it has arrived
they leave together as the next batch. A quiet producer therefore pays one round trip, and a busy one
pays one round trip for all that happened during the last one: group commit, for every store.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import cast

from onebus.errors import PayloadTooLarge, StoreClosed
from onebus.log.batch import Entry, Kind, encode, encode_values

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

    messages: Sequence[Entry] | Sequence[bytes]
    kind: Kind | None
    """The kind of all messages when they are nothing but values; None when they are entries."""
    size: int
    stored: asyncio.Future[int]

    def entries(self) -> Sequence[Entry]:
        if self.kind is None:
            return cast("Sequence[Entry]", self.messages)
        return [Entry(value, self.kind) for value in cast("Sequence[bytes]", self.messages)]


@dataclass(slots=True)
class _Batch:
    """Calls that leave together, encoded."""

    calls: Sequence[_Call]
    blob: bytes


@dataclass(slots=True)
class _Lane:
    """What is on its way to one log, in order."""

    waiting: deque[_Call] = field(default_factory=deque)
    count: int = 0
    size: int = 0
    """Messages and bytes that wait."""
    prepared: _Batch | None = None
    """A full batch, encoded while the one before it is on its way, so that it can leave at once."""
    draining: asyncio.Task[None] | None = None

    def add(self, call: _Call) -> None:
        self.waiting.append(call)
        self.count += len(call.messages)
        self.size += call.size

    def take(self) -> _Call:
        call = self.waiting.popleft()
        self.count -= len(call.messages)
        self.size -= call.size
        return call


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
        self._lanes: dict[str, _Lane] = {}
        self._closed = False

    async def append(self, log: str, entry: Entry) -> int:
        """Append one message and return its id.

        Cancellation: the message is not stored if its batch is still open; otherwise it may be.

        Raises:
            PayloadTooLarge: the message exceeds the limit; nothing is stored.
            StoreError: the batch that held the message failed; only its own callers hear of that.
        """
        (size,) = self._checked([_size(entry)])
        return await self._enqueue(log, (entry,), None, size)

    async def append_many(self, log: str, entries: Sequence[Entry]) -> list[int]:
        """Append messages and return their ids: ascending, and dense within each batch that the list fills.

        Cancellation and errors are those of `append`; what did not leave before one of them is not stored.
        """
        return await self._append_chunks(log, entries, None, self._checked([_size(entry) for entry in entries]))

    async def append_values(self, log: str, values: Sequence[bytes], *, kind: Kind = Kind.BYTES) -> list[int]:
        """Append messages that are nothing but values: the fastest way, at a fraction of the cost of entries."""
        return await self._append_chunks(log, values, kind, self._checked(list(map(len, values))))

    async def close(self) -> None:
        """Refuse new messages and return when those already accepted are stored or have failed."""
        self._closed = True
        while draining := [lane.draining for lane in self._lanes.values() if lane.draining is not None]:
            await asyncio.wait(draining)

    def _checked(self, sizes: list[int]) -> list[int]:
        largest = max(sizes, default=0)
        if largest > self._limits.max_message_bytes:
            raise PayloadTooLarge(
                f"A message of {largest} bytes exceeds the limit of {self._limits.max_message_bytes}; "
                "send less, or raise max_message_bytes."
            )
        return sizes

    async def _append_chunks(
        self, log: str, messages: Sequence[Entry] | Sequence[bytes], kind: Kind | None, sizes: Sequence[int]
    ) -> list[int]:
        chunks = list(self._chunks(messages, sizes))
        futures = [self._enqueue(log, chunk, kind, size) for chunk, size in chunks]
        ids: list[int] = []
        try:
            for future, (chunk, _) in zip(futures, chunks, strict=True):
                first_id = await future
                ids.extend(range(first_id, first_id + len(chunk)))
        finally:
            for future in futures:
                future.cancel()
        return ids

    def _chunks(
        self, messages: Sequence[Entry] | Sequence[bytes], sizes: Sequence[int]
    ) -> Iterator[tuple[Sequence[Entry] | Sequence[bytes], int]]:
        total = sum(sizes)
        if messages and self._fits(len(messages), total):
            yield messages, total
            return
        start, total = 0, 0
        for index, size in enumerate(sizes):
            if index > start and not self._fits(index - start + 1, total + size):
                yield messages[start:index], total
                start, total = index, 0
            total += size
        if start < len(messages):
            yield messages[start:], total

    def _fits(self, count: int, size: int) -> bool:
        return count <= self._limits.max_batch_messages and size <= self._limits.max_batch_bytes

    def _enqueue(
        self, log: str, messages: Sequence[Entry] | Sequence[bytes], kind: Kind | None, size: int
    ) -> asyncio.Future[int]:
        if self._closed:
            raise StoreClosed("The writer is closed and accepts no more messages.")
        call = _Call(messages, kind, size, asyncio.get_running_loop().create_future())
        lane = self._lanes.setdefault(log, _Lane())
        lane.add(call)
        if lane.draining is None:
            lane.draining = asyncio.create_task(self._drain(log, lane), name=f"onebus-writer {log}")
        elif lane.prepared is None and not self._fits(lane.count + 1, lane.size + 1):
            lane.prepared = self._prepare(lane)
        return call.stored

    async def _drain(self, log: str, lane: _Lane) -> None:
        try:
            while batch := lane.prepared or self._prepare(lane):
                lane.prepared = None
                await self._store(log, batch)
        finally:
            # Only a cancelled lane, or one whose code is wrong, leaves callers behind: they must not hang.
            for call in lane.waiting:
                call.stored.cancel()
            del self._lanes[log]

    def _prepare(self, lane: _Lane) -> _Batch | None:
        """Encode what waits, as much as one batch may hold, without those who have given up."""
        calls: list[_Call] = []
        count, size = 0, 0
        while lane.waiting:
            call = lane.waiting[0]
            if call.stored.cancelled():
                lane.take()
                continue
            count += len(call.messages)
            size += call.size
            if calls and not self._fits(count, size):
                break
            calls.append(lane.take())
        return _Batch(calls, self._encode(calls)) if calls else None

    async def _store(self, log: str, batch: _Batch) -> None:
        try:
            first_id = await self._append(log, batch.blob)
        except BaseException as error:
            for call in batch.calls:
                if not call.stored.done():
                    call.stored.set_exception(error) if isinstance(error, Exception) else call.stored.cancel()
            if not isinstance(error, Exception):
                raise
            return
        for call in batch.calls:
            if not call.stored.done():
                call.stored.set_result(first_id)
            first_id += len(call.messages)

    def _encode(self, calls: Sequence[_Call]) -> bytes:
        kind = calls[0].kind
        if kind is not None and all(call.kind is kind for call in calls):
            values = list(chain.from_iterable(cast("Sequence[bytes]", call.messages) for call in calls))
            return encode_values(values, kind=kind, now_ms=self._clock(), compress=self._compress)
        entries = list(chain.from_iterable(call.entries() for call in calls))
        return encode(entries, now_ms=self._clock(), compress=self._compress)


def _size(entry: Entry) -> int:
    size = len(entry.value)
    if entry.key is not None:
        size += len(entry.key)
    if entry.headers:
        size += sum(len(name) + len(text) for name, text in entry.headers.items())
    return size
