"""A member of a group, which gets the messages of its share of one topic or several."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from typing import Final, Self

from onebus.errors import AlreadyConsuming, InvalidArgument
from onebus.events import Emitter
from onebus.objects.link import Link
from onebus.objects.topics.batch import TopicBatch
from onebus.objects.topics.keyed import KeyedWork, MessageHandler
from onebus.objects.topics.names import checked_group
from onebus.objects.topics.share import Share, begins_at_end

LEASE_SECONDS: Final = 10.0
MAX_MESSAGES: Final = 1000


class TopicConsumer(Emitter):
    """One member of a group, as an async iterator of batches. Create it with `Topic.consume` or `Bus.consume`.

    A batch is done when the body of the loop comes to its end, unless ``auto_commit`` is off: then when it is finished
    or committed by hand. What is not done is delivered again, to this member or another. Use it in ``async with`` to
    leave the group at once when the loop ends.

    Delivery: at least once. Order: by id within a partition, also when it moves to another member.

    Events: ``assigned`` (topic, partitions), ``revoked`` (topic, partitions), ``rebalance`` (topic, all partitions of
    this member), ``error`` (error).
    """

    def __init__(
        self,
        link: Link,
        topics: Sequence[str],
        group: str,
        *,
        start: str = "beginning",
        lease_seconds: float = LEASE_SECONDS,
        max_messages: int = MAX_MESSAGES,
        auto_commit: bool = True,
    ) -> None:
        super().__init__()
        if not topics:
            raise InvalidArgument("Say which topics to consume.")
        if lease_seconds <= 0 or max_messages < 1:
            raise InvalidArgument("lease_seconds and max_messages must be greater than 0.")
        self.group = group
        self._link = link
        self._names = [checked_group(topic, group) for topic in dict.fromkeys(topics)]
        self._begins_at_end = begins_at_end(start)
        self._lease_seconds = lease_seconds
        self._max_messages = max_messages
        self._commits = auto_commit
        self._shares: list[Share] = []
        self._ready: deque[TopicBatch] = deque()
        self._bell: asyncio.Future[None] | None = None
        self._current: TopicBatch | None = None
        self._is_iterating = False
        self._is_over = False
        self._joining = asyncio.Lock()
        self._error: BaseException | None = None

    @property
    def assignment(self) -> dict[str, list[int]]:
        """The partitions of each topic that this member has at the moment."""
        return {share.topic: share.partitions for share in self._shares}

    # Life

    async def __aenter__(self) -> Self:
        await self.join()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def join(self) -> None:
        """Join the group; it rebalances, and partitions follow. Joining twice does nothing."""
        async with self._joining:
            if self._shares or self._is_over:
                return
            self._shares = [
                Share(
                    self._link,
                    name,
                    events=self.events,
                    offer=self._offer,
                    lease_seconds=self._lease_seconds,
                    max_messages=self._max_messages,
                    begins_at_end=self._begins_at_end,
                    failed=self._fail,
                )
                for name in self._names
            ]
            self._link.enter(self, first=True)
            try:
                for share in self._shares:
                    await share.join()
            except BaseException:
                await self._leave()
                raise

    def stop(self) -> None:
        """End the loop when its body comes to its end. May be called from anywhere, also from the body."""
        self._is_over = True
        self._ring()

    async def close(self) -> None:
        """Leave the group: what is done is committed, and the partitions go to the others. May be called twice."""
        self.stop()
        async with self._joining:
            if self._current is not None:
                self._current.abandon()
                self._current = None
            await self._leave()

    async def _leave(self) -> None:
        shares, self._shares = self._shares, []
        self._link.leave(self)
        self._ready.clear()
        await asyncio.gather(*(share.leave() for share in shares))

    async def detach(self) -> None:
        """Close it, because the bus disconnects."""
        await self.close()

    # Batches

    def __aiter__(self) -> AsyncGenerator[TopicBatch]:
        return self._batches()

    async def _batches(self) -> AsyncGenerator[TopicBatch]:
        if self._is_iterating:
            raise AlreadyConsuming("One loop at a time: its batches are in order.")
        self._is_iterating = True
        try:
            await self.join()
            while (batch := await self.next()) is not None:
                yield batch
                self._end_body()
        finally:
            self._is_iterating = False
            await self.close()

    async def next(self) -> TopicBatch | None:
        """Return the next batch, or None when the consumer was stopped.

        Raises whatever makes it impossible to read on; a store that is away does not.
        """
        while not self._is_over:
            if self._error is not None:
                raise self._error
            while self._ready:
                batch = self._ready.popleft()
                if batch.deliver():
                    self._current = batch
                    return batch
            self._bell = asyncio.get_running_loop().create_future()
            await self._bell
        return None

    async def process(self, handler: MessageHandler, *, key_concurrency: int = 1) -> None:
        """Await a handler for each message until the consumer is stopped, for so many keys at the same time.

        Messages with the same key are handled one after the other, in their order; so are those of one partition that
        have none. A key that is slow delays itself alone. A batch is done when all its messages and all batches before
        it are. What the handler raises ends this: what is not done is delivered again.
        """
        if key_concurrency < 1:
            raise InvalidArgument(f"key_concurrency must be at least 1, but is {key_concurrency}.")
        if self._is_iterating:
            raise AlreadyConsuming("One loop at a time: its batches are in order.")
        self._is_iterating = True
        work = KeyedWork(handler, key_concurrency)
        taking = asyncio.create_task(self._take_all(work), name=f"onebus-process {self.group}")
        try:
            await asyncio.wait((taking, work.failed), return_when=asyncio.FIRST_COMPLETED)
            await (work.failed if work.failed.done() else taking)
        finally:
            self._is_iterating = False
            taking.cancel()
            work.failed.cancel()
            await work.cancel()
            await self.close()

    async def _take_all(self, work: KeyedWork) -> None:
        await self.join()
        while (batch := await self.next()) is not None:
            self._current = None
            await work.take(batch)
        await work.finish()

    def _end_body(self) -> None:
        batch, self._current = self._current, None
        if batch is not None and self._commits:
            batch.finish()

    def _offer(self, batch: TopicBatch) -> None:
        self._ready.append(batch)
        self._ring()

    def _fail(self, error: BaseException) -> None:
        self._error = error
        self._ring()

    def _ring(self) -> None:
        if self._bell is not None and not self._bell.done():
            self._bell.set_result(None)
