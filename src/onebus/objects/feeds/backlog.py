"""What feeds remember: the messages of a channel, or of all, that follow an id."""

from collections.abc import AsyncGenerator

from msgspec import Struct
from msgspec.structs import replace

from onebus.log.names import PLACE_SEPARATOR
from onebus.log.stored import StoredBatch
from onebus.objects.feeds.limits import FeedLimits
from onebus.objects.feeds.message import FeedMessage, messages_of_all, messages_of_channel
from onebus.objects.feeds.names import FEEDS, ChannelName, channel_of_log
from onebus.objects.link import Link
from onebus.stores.base import MEBIBYTE

READ_AT_ONCE = 2000
READ_BYTES_AT_ONCE = 4 * MEBIBYTE


class Backlog:
    """The messages of one channel, or of all channels, in the order of their ids."""

    def __init__(self, link: Link, limits: FeedLimits, channel: ChannelName | None) -> None:
        self._link = link
        self._limits = limits
        self._channel = channel
        self._log = FEEDS if channel is None else channel.log

    async def last_id(self) -> int:
        """Return the newest id; 0 if there has never been a message."""
        stat = await self._link.store.stat(self._log)
        return 0 if stat is None else stat.last_id

    async def first_id(self) -> int:
        """Return the oldest id that is kept."""
        stat = await self._link.store.stat(self._log)
        return 1 if stat is None else stat.first_id

    async def epoch(self) -> str:
        """Return which life of the log this is; one that has never had a message begins to live."""
        stat = await self._link.store.stat(self._log)
        if stat is None:
            await self._link.store.touch(self._log, create=True)
            stat = await self._link.store.stat(self._log)
        return "" if stat is None else stat.epoch

    async def after(self, last_id: int) -> list[FeedMessage]:
        """Return all messages that follow an id and are not to be forgotten."""
        return [message async for page in self.pages(last_id) for message in page if not self._is_over(message)]

    async def pages(self, last_id: int) -> AsyncGenerator[list[FeedMessage]]:
        """Yield the messages that follow an id, as many at a time as are read at once."""
        is_whole = False
        while not is_whole:
            page = await self._read(last_id)
            if page.messages:
                yield page.messages
            last_id, is_whole = page.reached, page.is_whole

    async def page(self, last_id: int, *, max_bytes: int = READ_BYTES_AT_ONCE) -> "Page":
        """Return messages that follow an id and are not to be forgotten: at least one, if there is one."""
        while True:
            page = await self._read(last_id, max_bytes)
            kept = [message for message in page.messages if not self._is_over(message)]
            if kept or page.is_whole:
                return replace(page, messages=kept)
            last_id = page.reached

    async def _read(self, last_id: int, max_bytes: int = READ_BYTES_AT_ONCE) -> "Page":
        found = await self._link.store.read(self._log, after=last_id, limit=READ_AT_ONCE, max_bytes=max_bytes)
        unread = max(last_id + 1, found.first_id)
        messages = (message for batch in found.batches for message in self._messages(batch))
        return Page(
            messages=[message for message in messages if self._id_of(message) >= unread],
            reached=found.batches[-1].last_id if found.batches else found.last_id,
            last_id=found.last_id,
        )

    def _id_of(self, message: FeedMessage) -> int:
        """Return the id by which this backlog counts."""
        return message.global_id if self._channel is None else message.message_id

    def _messages(self, batch: StoredBatch) -> list[FeedMessage]:
        return messages_of_all(batch) if self._channel is None else messages_of_channel(self._channel, batch)

    def _is_over(self, message: FeedMessage) -> bool:
        now_ms = self._link.clock()
        if message.ends_ms is not None and message.ends_ms <= now_ms:
            return True
        return now_ms - message.time_ms > self._limits.max_backlog_age * 1000


class Page(Struct, frozen=True):
    """A part of a backlog."""

    messages: list[FeedMessage]
    reached: int
    """The id of the last message that was read, wanted or not."""
    last_id: int
    """The newest id of all."""

    @property
    def is_whole(self) -> bool:
        """Whether there is nothing after it."""
        return self.reached >= self.last_id


class Backlogs:
    """All backlogs of a bus."""

    def __init__(self, link: Link, limits: FeedLimits) -> None:
        self._link = link
        self._limits = limits

    def of(self, channel: ChannelName | None) -> Backlog:
        """Return the backlog of a channel; None is all channels."""
        return Backlog(self._link, self._limits, channel)

    async def channels(self, name: str | None = None) -> list[ChannelName]:
        """Return all channels that have ever been published to, or those of all sites with one name."""
        logs = await self._link.store.list_logs(FEEDS + PLACE_SEPARATOR)
        channels = map(channel_of_log, logs)
        return [channel for channel in channels if name is None or channel.name == name]
