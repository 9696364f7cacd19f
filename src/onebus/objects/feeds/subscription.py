"""What one subscriber has read, and what comes next: the backlog first if it wants it, then what is published."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any, Final, Self

from onebus.errors import MessagesMissed
from onebus.objects.feeds.backlog import Backlogs
from onebus.objects.feeds.message import FeedMessage
from onebus.objects.feeds.names import ChannelName
from onebus.objects.feeds.tail import Tail

MAX_WAITING: Final = 100_000
"""So many messages wait for a subscriber that is slow; more than that it reads from the store when it is ready."""

Key = ChannelName | None
"""By what messages are counted: each channel of each site by itself, or, where all channels are wanted, all of them."""


class FeedSubscription:
    """The messages of a channel, or of all channels, as an async iterator. Create it with `Bus.subscribe`.

    It begins when it is awaited, entered with ``async with``, or asked for the first message; what is published after
    that arrives, once and in order. Ids are dense, so a message that got lost on the way is noticed and read from the
    store. Iteration ends when the subscription is closed or the bus is disconnected.
    """

    def __init__(
        self,
        tail: Tail,
        backlogs: Backlogs,
        channel: str | None,
        own: Key,
        *,
        last_id: int,
        site_id: str | None,
        closed: Callable[["FeedSubscription"], None],
    ) -> None:
        self.channel = channel
        self._tail = tail
        self._backlogs = backlogs
        self._own = own
        self._last_id = last_id
        self._site_id = site_id
        """Only messages of this site, and of all sites, are wanted; None if those of every site are."""
        self._positions: dict[Key, int] = {}
        self._begins_after = 0
        self._ready: deque[FeedMessage] = deque()
        self._arrived: deque[list[FeedMessage]] = deque()
        self._waiting = 0
        self._is_behind = False
        self._behind: deque[Key] = deque()
        self._pages: AsyncGenerator[list[FeedMessage]] | None = None
        self._bell = asyncio.Event()
        self._tell_closed = closed
        self._closed = False
        self._beginning: asyncio.Task[None] | None = None

    # Life

    def __await__(self) -> Generator[Any, None, Self]:
        yield from self._begin().__await__()
        return self

    async def __aenter__(self) -> Self:
        return await self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    async def _begin(self) -> None:
        if self._beginning is None:
            self._beginning = asyncio.create_task(self._find_position(), name=f"onebus-subscribe {self.channel}")
        await asyncio.shield(self._beginning)

    async def _find_position(self) -> None:
        await self._tail.add(self.channel, self)
        self._begins_after = await self._backlogs.of(None).last_id()
        newest = await self._backlogs.of(self._own).last_id()
        if self._last_id < 0:
            position = max(newest + self._last_id + 1, 0)
        else:
            # Whoever has read more than there is has read it in an earlier life of the channel.
            position = self._last_id if self._last_id <= newest else 0
        self._positions[self._own] = position
        if position < newest:
            self._behind.append(self._own)

    def close(self) -> None:
        """End the subscription: no message arrives any more."""
        self._closed = True
        self._tell_closed(self)
        self._tail.remove(self.channel, self)
        self._arrived.clear()
        self._bell.set()

    # What the tail brings

    def arrived(self, messages: list[FeedMessage]) -> None:
        self._waiting += len(messages)
        if self._waiting > MAX_WAITING:
            self._forget_arrived()
        else:
            self._arrived.append(messages)
        self._bell.set()

    def fell_behind(self) -> None:
        self._forget_arrived()
        self._bell.set()

    def began_anew(self) -> None:
        self._forget_arrived()
        self._pages = None
        self._begins_after = 0
        self._positions = dict.fromkeys(self._positions, 0)
        self._bell.set()

    def ended(self) -> None:
        self.close()

    def _forget_arrived(self) -> None:
        self._arrived.clear()
        self._waiting = 0
        self._is_behind = True

    # What the subscriber reads

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> FeedMessage:
        """Return the next message.

        Raises:
            MessagesMissed: some were forgotten before they were read; the next call goes on with those after them.
        """
        if not self._positions:
            await self._begin()
        while not self._ready:
            if self._closed:
                raise StopAsyncIteration
            await self._advance()
        return self._ready.popleft()

    async def _advance(self) -> None:
        """Make some messages ready, or wait for some."""
        if self._pages is not None:
            await self._read_page(self._pages)
        elif self._is_behind:
            # From here on what arrives is kept again, so that nothing falls between the backlog and that.
            self._is_behind = False
            self._behind.extend(await self._keys())
        elif self._behind:
            key = self._behind.popleft()
            self._pages = self._backlogs.of(key).pages(self._positions[key])
        elif self._arrived:
            messages = self._arrived.popleft()
            self._waiting -= len(messages)
            self._take(messages)
        else:
            self._bell.clear()
            await self._bell.wait()

    async def _read_page(self, pages: AsyncGenerator[list[FeedMessage]]) -> None:
        page = await anext(pages, None)
        if page is None:
            if self._pages is pages:
                self._pages = None
        elif page and self._pages is pages:
            key = self._key(page[0])
            self._check_gap(key, self._id(page[0]))
            self._make_ready(key, page)

    def _check_gap(self, key: Key, found: int) -> None:
        """Raise if what should come before a message has been forgotten; who wants all that is left misses nothing."""
        expected = self._positions[key] + 1
        if found > expected > 1:
            self._positions[key] = found - 1
            self._pages = None
            self._behind.appendleft(key)
            raise MessagesMissed("all channels" if key is None else key.name, expected, found - 1)

    def _take(self, messages: list[FeedMessage]) -> None:
        key = self._key(messages[0])
        first = self._id(messages[0])
        if first > self._positions.setdefault(key, first - 1) + 1:
            # Something got lost on the way: all of it is in the backlog.
            self._behind.append(key)
        else:
            self._make_ready(key, messages)

    def _make_ready(self, key: Key, messages: list[FeedMessage]) -> None:
        """Take those messages, all counted by `key`, that were not seen before, and of them those that are wanted."""
        position, is_own = self._positions[key], key == self._own
        self._positions[key] = max(position, self._id(messages[-1]))
        for message in messages:
            is_new = self._id(message) > position and (is_own or message.global_id > self._begins_after)
            if is_new and (self._site_id is None or message.site_id in (None, self._site_id)):
                self._ready.append(message)

    def _key(self, message: FeedMessage) -> Key:
        return None if self.channel is None else ChannelName(message.channel, message.site_id)

    def _id(self, message: FeedMessage) -> int:
        return message.global_id if self.channel is None else message.message_id

    async def _keys(self) -> list[Key]:
        """Return by what messages are counted, with those channels that came into being unnoticed."""
        if self.channel is not None and self._site_id is None:
            for channel in await self._backlogs.channels(self.channel):
                self._positions.setdefault(channel, 0)
        return list(self._positions)
