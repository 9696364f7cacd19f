"""One partition that a member of a group owns: it is read ahead, and what is done of it is committed."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import aclosing, suppress
from typing import Any, Final

from onebus.errors import BusError, MessagesMissed, PartitionLost, VersionConflict
from onebus.events import Events
from onebus.objects.link import Link
from onebus.objects.topics.batch import TopicBatch
from onebus.objects.topics.cursors import Cursor, Cursors
from onebus.objects.topics.names import log_of
from onebus.objects.topics.stretch import cut, stretches_after
from onebus.stores.base import Slice
from onebus.stores.following import RETRY_SECONDS, follow

MAX_AHEAD: Final = 16
"""How many batches of a partition are read and not done; more of them wait in the store."""
GATHER_SECONDS: Final = 0.02
"""How long positions gather after a commit before the next one, unless somebody waits for it."""
COMMIT_SECONDS: Final = 10.0
"""How long to try to commit what is done before a partition is left to others."""


class PartitionReading:
    """Reads one partition from where its group is, for as long as it is owned."""

    def __init__(
        self,
        link: Link,
        topic: str,
        number: int,
        cursors: Cursors,
        cursor: Cursor,
        *,
        events: Events,
        offer: Callable[[TopicBatch], None],
        max_messages: int,
        lost: Callable[["PartitionReading"], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self.topic = topic
        self.number = number
        self._link = link
        self._log = log_of(topic, number)
        self._cursors = cursors
        self._cursor = cursor
        self._events = events
        self._offer = offer
        self._max_messages = max_messages
        self._tell_lost = lost
        self._tell_failed = failed
        self._open: deque[TopicBatch] = deque()
        self._room = asyncio.Semaphore(MAX_AHEAD)
        self._done = cursor.position or 0
        self._done_epoch = cursor.epoch
        self._committed, self._committed_epoch = self._done, self._done_epoch
        self._after, self._epoch = self._done, self._done_epoch
        """How far it was read, and in which life of the log."""
        self._is_leaving = False
        self._news = asyncio.Event()
        self._hurry = asyncio.Event()
        self._change = asyncio.Condition()
        self._reader: asyncio.Task[None] | None = None
        self.is_lost = False
        """Whether another member has the partition by now, or may have it."""

    @property
    def fence(self) -> int:
        return self._cursor.fence

    def start(self) -> None:
        self._read_from(self._done, self._done_epoch)
        self._run(self._commit_always(), "commits")

    def _run(self, work: Coroutine[Any, Any, None], what: str) -> asyncio.Task[None]:
        task = self._link.run(work, self._events, f"onebus-{what} {self.topic}:{self.number}")
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.lose()
            self._tell_failed(error)

    # Reading

    def _read_from(self, position: int, epoch: str) -> None:
        if self._reader is not None:
            self._reader.cancel()
        if not self._is_leaving:
            self._after, self._epoch = position, epoch
            self._reader = self._run(self._read(), "reads")

    async def _read(self) -> None:
        while True:
            try:
                await self._read_one_life()
            except BusError as error:
                if not error.retryable:
                    raise
                self._link.log.debug("%s could not be read: %s", self._log, error)
                await asyncio.sleep(RETRY_SECONDS)

    async def _read_one_life(self) -> None:
        """Read on until the log is deleted and made again; what is new then is read from its beginning."""
        news = follow(self._link.store, self._log, after=self._after, limit=self._max_messages)
        async with aclosing(news):
            async for found in news:
                if self._epoch and found.epoch != self._epoch:
                    self._after, self._epoch = 0, found.epoch
                    return
                self._epoch = found.epoch
                await self._take_in(found)

    async def _take_in(self, found: Slice) -> None:
        after = self._after if found.last_id >= self._after else 0
        if found.first_id > after + 1:
            await self._events.emit("error", MessagesMissed(self._log, after + 1, found.first_id - 1))
        # Producers may have stored them one by one; whoever reads them has less to do with many at once.
        for several in cut(stretches_after(found.batches, max(after, found.first_id - 1)), self._max_messages):
            await self._room.acquire()
            batch = TopicBatch(self, several, found.epoch)
            self._open.append(batch)
            self._after = batch.last_id
            self._offer(batch)
        self._after = found.batches[-1].last_id

    def deliver(self, batch: TopicBatch) -> bool:
        """Return whether a batch that was offered may still be worked on; then it is."""
        batch.is_delivered = not self.is_lost and batch in self._open
        return batch.is_delivered

    # Being done

    def finished(self, batch: TopicBatch) -> None:
        if batch.is_finished:
            return
        batch.is_finished = True
        while self._open and self._open[0].is_finished:
            done = self._open.popleft()
            self._done, self._done_epoch = done.last_id, done.epoch
            self._room.release()
        self._ring()

    def abandoned(self, batch: TopicBatch) -> None:
        """Hear that nobody works on a batch any more that is not done: it and what follows it are read again."""
        while batch in self._open:
            self._open.pop()
            self._room.release()
        self._ring()

    async def commit(self, batch: TopicBatch) -> None:
        if batch in self._open:
            for earlier in list(self._open)[: self._open.index(batch) + 1]:
                self.finished(earlier)
        self._hurry.set()
        async with self._change:
            await self._change.wait_for(lambda: self.is_lost or (batch not in self._open and not self._is_behind))
        if self.is_lost:
            raise PartitionLost(f"{self.topic}:{self.number} belongs to another member of the group by now.")

    @property
    def _is_behind(self) -> bool:
        return (self._done, self._done_epoch) != (self._committed, self._committed_epoch)

    def _ring(self) -> None:
        self._news.set()

    async def _commit_always(self) -> None:
        try:
            while not self.is_lost:
                await self._news.wait()
                self._news.clear()
                while self._is_behind and not self.is_lost:
                    await self._commit_once(self._done, self._done_epoch)
                async with self._change:
                    self._change.notify_all()
                await self._gather()
        finally:
            # Nobody may wait for a commit that nobody tries any more.
            self.lose()
            async with self._change:
                self._change.notify_all()

    async def _gather(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(GATHER_SECONDS):
                await self._hurry.wait()
        self._hurry.clear()

    async def _commit_once(self, position: int, epoch: str) -> None:
        try:
            try:
                self._cursor = await self._cursors.commit(self.number, self._cursor, position, epoch)
                self._committed, self._committed_epoch = position, epoch
            except VersionConflict:
                self.look(await self._cursors.get(self.number))
        except BusError as error:
            if not error.retryable:
                raise
            await asyncio.sleep(RETRY_SECONDS)

    def look(self, now: Cursor) -> None:
        """Compare the cursor with what is known of it: it may be somebody else's by now, or have been moved."""
        mine = self._cursor
        if now.owner != mine.owner or now.fence != mine.fence:
            self.lose()
        elif now.version > mine.version:
            self._cursor = now
            if now.moves != mine.moves:
                self._go_to(now)
            elif now.position is not None:
                # What was committed is stored, and only the answer got lost.
                self._committed, self._committed_epoch = now.position, now.epoch

    def _go_to(self, cursor: Cursor) -> None:
        """Read on somewhere else, because somebody has moved the position."""
        position = cursor.position or 0
        self._open.clear()
        self._room = asyncio.Semaphore(MAX_AHEAD)
        self._done = self._committed = position
        self._done_epoch = self._committed_epoch = cursor.epoch
        self._read_from(position, cursor.epoch)

    async def _wait_until(self, condition: Callable[[], bool], seconds: float) -> None:
        """Return when a condition holds, the partition is lost, or the time is up."""
        self._ring()
        self._hurry.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds), self._change:
                await self._change.wait_for(lambda: self.is_lost or condition())

    # Leaving

    def lose(self) -> None:
        """Hear that the partition is somebody else's."""
        if not self.is_lost:
            self.is_lost = True
            self._open.clear()
            if self._reader is not None:
                self._reader.cancel()
            self._ring()
            self._tell_lost(self)

    async def release(self, patience_seconds: float) -> None:
        """Commit what is done, and leave the partition to others; what is being worked on may take a while to be done.

        What is not done then is delivered again, to somebody else.
        """
        self._is_leaving = True
        if self._reader is not None:
            self._reader.cancel()
        while self._open and not self._open[-1].is_delivered:
            self._open.pop()
        await self._wait_until(lambda: not self._open, patience_seconds)
        self._open.clear()
        await self._wait_until(lambda: not self._is_behind, COMMIT_SECONDS)
        if not self.is_lost:
            self.is_lost = True
            self._ring()
            try:
                await self._cursors.release(self.number, self._cursor)
            except BusError as error:
                if not error.retryable:
                    raise
                # Somebody else has it already, or will take it when this member is gone.
