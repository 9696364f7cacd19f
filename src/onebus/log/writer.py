"""The coalescing writer: many small appends become few large ones, and nobody waits for a timer.

While a batch of a log is on its way to the store, further appends to that log gather; when it has arrived
they leave together as the next batch. A quiet producer therefore pays one round trip, and a busy one
pays one round trip for all that happened during the last one: group commit, for every store.
"""

import asyncio
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, NoReturn, cast

from msgspec import Struct

from onebus.errors import LogFull, Overloaded, PayloadTooLarge, StoreClosed
from onebus.log.batch import Entry, Kind, encode, encode_values

AppendBatch = Callable[[str, bytes], Awaitable[int]]
"""Stores a batch in a log and returns the id of its first message."""

Unheard = Callable[[str, Exception], None]
"""Called with the log and the error when a batch failed and none of its callers has asked, or can still ask."""


@dataclass(frozen=True, slots=True)
class WriterLimits:
    max_message_bytes: int = 1024 * 1024
    """The largest message that is accepted: value, key and headers together."""
    max_batch_messages: int = 10_000
    max_batch_bytes: int = 1024 * 1024
    """A batch is closed before it exceeds either limit; what is left over waits for the next one."""
    max_waiting_bytes: int = 64 * 1024 * 1024
    """What may wait to be stored; beyond that, callers wait for their turn."""

    def check(self, size: int) -> None:
        """Raise `PayloadTooLarge` if a message of so many bytes is too large."""
        if size > self.max_message_bytes:
            raise PayloadTooLarge(
                f"A message of {size} bytes exceeds the limit of {self.max_message_bytes}; "
                "send less, or raise max_message_bytes."
            )


class Receipt(Struct, gc=False, eq=False):
    """The promise that messages will be stored. Awaiting it gives the id of the first of them.

    There is one for every message that is posted, and none of them is part of a cycle.

    Cancellation: messages whose batch is still open are not stored; otherwise they may be.
    """

    _batch: "_Batch"
    _index: int
    _count: int = 1

    def __await__(self) -> Generator[Any, None, int]:
        batch = self._batch
        if not batch.is_done:
            try:
                yield from batch.wait()
            except BaseException:
                self.give_up()
                raise
        return batch.id_of(self._index)

    def give_up(self) -> None:
        """Take the messages back if they have not left yet."""
        self._batch.forget(self._index, self._count)

    def ids(self) -> range:
        """Return the ids of all messages, which are stored by now."""
        first_id = self._batch.id_of(self._index)
        return range(first_id, first_id + self._count)


class _Batch:
    """Messages that leave together: plain values of one kind as long as there are no others, else entries."""

    __slots__ = (
        "_blob",
        "_error",
        "_first_id",
        "_fitting",
        "_given_up",
        "_overflow",
        "_traceback",
        "_unheard",
        "is_done",
        "kind",
        "messages",
        "size",
        "waiters",
    )

    def __init__(self, kind: Kind | None) -> None:
        self.kind = kind
        """The kind of all messages while they are nothing but values; None when they are entries."""
        self.messages: list[Any] = []
        self.size = 0
        self.waiters: list[asyncio.Future[None]] = []
        self.is_done = False
        self._blob: bytes | None = None
        self._given_up: list[int] = []
        self._first_id = 0
        self._error: Exception | None = None
        self._fitting = 0
        self._overflow: Exception | None = None
        self._traceback: TracebackType | None = None
        self._unheard: Callable[[], None] | None = None

    def wait(self) -> asyncio.Future[None]:
        """Return a future that is done when the batch is; one for each who waits, so that any may be cancelled."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.is_done:
            waiter.set_result(None)
        self.waiters.append(waiter)
        return waiter

    def use_entries(self) -> None:
        if self.kind is not None:
            kind, self.kind = self.kind, None
            self.messages = [Entry(value, kind) for value in self.messages]

    def forget(self, index: int, count: int) -> None:
        """Leave out messages, unless they are encoded already; the others keep their order."""
        if self._blob is None:
            for position in range(index, index + count):
                insort(self._given_up, position)

    def seal(self, now_ms: int, *, compress: bool) -> bytes:
        """Encode the messages, once; from here on nothing can be left out. Nothing is left of an abandoned batch."""
        if self._blob is None:
            self._blob = self._encode(self._remaining(), now_ms, compress=compress)
        return self._blob

    def cut(self, count: int, now_ms: int, *, compress: bool) -> None:
        """Encode no more than the first `count` messages."""
        self._blob = self._encode(self._remaining()[:count], now_ms, compress=compress)
        self._fitting = count

    def overflowed(self, error: Exception, unheard: Callable[[], None] | None) -> None:
        """Let those messages fail that were cut off."""
        self._overflow, self._traceback = error, _beyond_the_writer(error)
        self._unheard = unheard

    def _remaining(self) -> list[Any]:
        if not self._given_up:
            return self.messages
        gone = set(self._given_up)
        return [message for position, message in enumerate(self.messages) if position not in gone]

    def _encode(self, messages: list[Any], now_ms: int, *, compress: bool) -> bytes:
        if not messages:
            return b""
        if self.kind is None:
            return encode(messages, now_ms=now_ms, compress=compress)
        return encode_values(messages, kind=self.kind, now_ms=now_ms, compress=compress)

    def id_of(self, index: int) -> int:
        if self._error is not None:
            self._raise(self._error)
        offset = index - bisect_left(self._given_up, index)
        if self._overflow is not None and offset >= self._fitting:
            self._raise(self._overflow)
        return self._first_id + offset

    def _raise(self, error: Exception) -> NoReturn:
        self._unheard = None
        # Many callers raise the same error; none of them wants the tracebacks of the others.
        raise error.with_traceback(self._traceback)

    def __del__(self) -> None:
        # Nobody can ask for the outcome any more.
        if self._unheard is not None:
            self._unheard()

    def stored(self, first_id: int) -> None:
        self._first_id = first_id
        self._finish()

    def failed(self, error: Exception, unheard: Callable[[], None] | None) -> None:
        self._error, self._traceback = error, _beyond_the_writer(error)
        self._unheard = unheard
        self._finish()

    def abandoned(self) -> None:
        """Wake the callers of a batch that nobody will store any more: they must not hang."""
        self._error = StoreClosed("The writer was stopped before these messages were stored.")
        for waiter in self.waiters:
            waiter.cancel()
        self._finish()

    def _finish(self) -> None:
        self.is_done = True
        self.messages = []
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(None)


class _Lane:
    """What is on its way to one log, in order. The last batch is open for more until it is full or leaves."""

    __slots__ = ("batches", "draining", "leaving", "open")

    def __init__(self) -> None:
        self.batches: deque[_Batch] = deque()
        self.open: _Batch | None = None
        self.leaving: _Batch | None = None
        self.draining: asyncio.Task[None] | None = None


class LogWriter:
    """Appends messages to logs, in as few batches as the pace of the store allows.

    Order: ids follow the order of the calls, per log. What waits here is bounded, and so is what leaves at once.
    """

    def __init__(
        self,
        append: AppendBatch,
        *,
        clock: Callable[[], int],
        limits: WriterLimits | None = None,
        compress: bool = False,
        unheard: Unheard | None = None,
        gather: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """With ``gather``, each batch waits for it before it leaves, for others to come along."""
        self._append = append
        self._clock = clock
        self._limits = limits = limits or WriterLimits()
        self._max_messages = limits.max_batch_messages
        self._max_bytes = limits.max_batch_bytes
        self._max_message_bytes = limits.max_message_bytes
        self._max_waiting_bytes = limits.max_waiting_bytes
        self._compress = compress
        self._unheard = unheard
        self._gather = gather
        self._lanes: dict[str, _Lane] = {}
        self._waiting_bytes = 0
        self._for_room: deque[asyncio.Future[None]] = deque()
        self._closed = False

    # Without waiting

    def post(self, log: str, entry: Entry) -> Receipt:
        """Accept one message now, to be stored with the others of this turn of the loop.

        The receipt need not be awaited; a failure that nobody awaits is told to ``unheard``.

        Raises:
            PayloadTooLarge: the message exceeds the limit; nothing is stored.
            Overloaded: too much waits already. `append` waits for its turn instead.
        """
        size = _size(entry)
        self._limits.check(size)
        self._check_turn()
        return self._add(log, entry, None, size)

    def post_value(self, log: str, value: bytes, kind: Kind) -> Receipt:
        """Accept one message that is nothing but a value: as `post`, at a fraction of the cost."""
        size = len(value)
        lane = self._lanes.get(log)
        batch = lane.open if lane is not None else None
        if (
            batch is None
            or batch.kind is not kind
            or len(batch.messages) >= self._max_messages
            or batch.size + size > self._max_bytes
            or size > self._max_message_bytes
            or self._waiting_bytes > self._max_waiting_bytes
            or self._for_room
        ):
            self._limits.check(size)
            self._check_turn()
            return self._add(log, value, kind, size)
        batch.size += size
        self._waiting_bytes += size
        messages = batch.messages
        messages.append(value)
        return Receipt(batch, len(messages) - 1)

    # Waiting

    async def append(self, log: str, entry: Entry) -> int:
        """Append one message and return its id.

        Cancellation: the message is not stored if its batch is still open; otherwise it may be.

        Raises:
            PayloadTooLarge: the message exceeds the limit; nothing is stored.
            StoreError: the batch that held the message failed; only its own callers hear of that.
        """
        self.check(entry)
        await self.room()
        return await self._add(log, entry, None, _size(entry))

    async def append_value(self, log: str, value: bytes, kind: Kind) -> int:
        """Append one message that is nothing but a value, as `append` does."""
        if not self._is_full and not self._for_room and not self._closed:
            return await self.post_value(log, value, kind)
        self._limits.check(len(value))
        await self.room()
        return await self._add(log, value, kind, len(value))

    async def append_many(self, log: str, entries: Sequence[Entry]) -> list[int]:
        """Append messages and return their ids: ascending, and dense within each batch that the list fills.

        Cancellation and errors are those of `append`; what did not leave before one of them is not stored.
        """
        return await self._append_chunks(log, entries, None, [_size(entry) for entry in entries])

    async def append_values(self, log: str, values: Sequence[bytes], *, kind: Kind = Kind.BYTES) -> list[int]:
        """Append messages that are nothing but values: the fastest way, at a fraction of the cost of entries."""
        return await self._append_chunks(log, values, kind, list(map(len, values)))

    def check(self, entry: Entry) -> None:
        """Raise `PayloadTooLarge` if a message can never be stored."""
        self._limits.check(_size(entry))

    async def flush(self) -> None:
        """Return when all that was accepted before is stored or has failed."""
        for lane in list(self._lanes.values()):
            last = lane.batches[-1] if lane.batches else lane.leaving
            if last is not None:
                await last.wait()

    async def close(self) -> None:
        """Refuse new messages and return when those already accepted are stored or have failed."""
        self._closed = True
        for waiter in self._for_room:
            waiter.cancel()
        while draining := [lane.draining for lane in self._lanes.values() if lane.draining is not None]:
            await asyncio.wait(draining)

    # Gathering

    @property
    def _is_full(self) -> bool:
        return self._waiting_bytes > self._max_waiting_bytes

    def _check_turn(self) -> None:
        """Refuse those who do not wait while there is no room, or others wait for it."""
        if self._is_full or self._for_room:
            raise Overloaded(
                f"{self._waiting_bytes} bytes wait to be stored already. Await what was pushed before pushing more."
            )

    async def room(self) -> None:
        """Return when it is the caller's turn and there is room for one more."""
        if self._is_full or self._for_room:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._for_room.append(waiter)
            try:
                await waiter
            finally:
                self._for_room.remove(waiter)
                self._wake_next()

    def _wake_next(self) -> None:
        if self._for_room and not self._is_full and not self._for_room[0].done():
            self._for_room[0].set_result(None)

    def _add(self, log: str, message: Entry | bytes, kind: Kind | None, size: int) -> Receipt:
        batch = self._batch_for(log, kind, 1, size)
        if kind is not None and batch.kind is not kind:
            message = Entry(cast("bytes", message), kind)
        batch.messages.append(message)
        return Receipt(batch, len(batch.messages) - 1)

    def _batch_for(self, log: str, kind: Kind | None, count: int, size: int) -> _Batch:
        """Return the batch that takes `count` more messages, and make it expect them."""
        if self._closed:
            raise StoreClosed("The writer is closed and accepts no more messages.")
        lane = self._lanes.get(log)
        if lane is None:
            lane = self._lanes[log] = _Lane()
            lane.draining = asyncio.create_task(self._drain(log, lane), name=f"onebus-writer {log}")
        batch = lane.open
        if batch is not None and not self._fits(len(batch.messages) + count, batch.size + size):
            # Encoded while the one before it is on its way, a full batch can leave at once.
            batch.seal(self._clock(), compress=self._compress)
            batch = None
        if batch is None:
            batch = lane.open = _Batch(kind)
            lane.batches.append(batch)
        elif batch.kind is not kind:
            batch.use_entries()
        batch.size += size
        self._waiting_bytes += size
        return batch

    def _fits(self, count: int, size: int) -> bool:
        return count <= self._max_messages and size <= self._max_bytes

    async def _append_chunks(
        self, log: str, messages: Sequence[Entry] | Sequence[bytes], kind: Kind | None, sizes: Sequence[int]
    ) -> list[int]:
        self._limits.check(max(sizes, default=0))
        receipts: list[Receipt] = []
        ids: list[int] = []
        try:
            for chunk, size in self._chunks(messages, sizes):
                await self.room()
                receipts.append(self._post_chunk(log, chunk, kind, size))
            for receipt in receipts:
                await receipt
                ids.extend(receipt.ids())
        except BaseException:
            for receipt in receipts:
                receipt.give_up()
            raise
        return ids

    def _post_chunk(self, log: str, chunk: Sequence[Entry] | Sequence[bytes], kind: Kind | None, size: int) -> Receipt:
        batch = self._batch_for(log, kind, len(chunk), size)
        index = len(batch.messages)
        if kind is not None and batch.kind is not kind:
            chunk = [Entry(value, kind) for value in cast("Sequence[bytes]", chunk)]
        batch.messages.extend(chunk)
        return Receipt(batch, index, len(chunk))

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

    # Leaving

    async def _drain(self, log: str, lane: _Lane) -> None:
        try:
            while lane.batches:
                if self._gather is not None:
                    await self._gather()
                batch = lane.leaving = lane.batches.popleft()
                if batch is lane.open:
                    lane.open = None
                size = batch.size
                try:
                    await self._store(log, batch)
                finally:
                    self._waiting_bytes -= size
                    self._wake_next()
        finally:
            # Only a cancelled lane, or one whose code is wrong, leaves batches behind.
            for batch in lane.batches:
                self._waiting_bytes -= batch.size
                batch.abandoned()
            del self._lanes[log]

    async def _store(self, log: str, batch: _Batch) -> None:
        try:
            blob = batch.seal(self._clock(), compress=self._compress)
            batch.stored(await self._append(log, blob) if blob else 0)
        except LogFull as error:
            await self._store_what_fits(log, batch, error)
        except Exception as error:
            self._failed(log, batch, error)
        except BaseException:
            batch.abandoned()
            raise

    async def _store_what_fits(self, log: str, batch: _Batch, error: LogFull) -> None:
        """Store the first messages of a batch, for which there is room; the others fail."""
        if error.room == 0:
            self._failed(log, batch, error)
            return
        _beyond_the_writer(error)
        full = LogFull(error.log, 0)
        batch.cut(error.room, self._clock(), compress=self._compress)
        batch.overflowed(full, self._unheard_of(log, full))
        await self._store(log, batch)

    def _failed(self, log: str, batch: _Batch, error: Exception) -> None:
        batch.failed(error, self._unheard_of(log, error))

    def _unheard_of(self, log: str, error: Exception) -> Callable[[], None] | None:
        return None if self._unheard is None else partial(self._unheard, log, error)


def _beyond_the_writer(error: Exception) -> TracebackType | None:
    """Return where an error comes from, without the frame that caught it.

    That one knows the batch: an error that is kept with its batch would keep both of them alive.
    """
    traceback = error.__traceback__.tb_next if error.__traceback__ is not None else None
    error.__traceback__ = traceback
    return traceback


def _size(entry: Entry) -> int:
    size = len(entry.value)
    if entry.key is not None:
        size += len(entry.key)
    if entry.headers:
        size += sum(len(name) + len(text) for name, text in entry.headers.items())
    return size
