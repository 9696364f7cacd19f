"""The one reader of a process that follows all channels, and hands what it finds to whoever subscribed to it."""

import asyncio
from typing import Protocol

from onebus.errors import CorruptBatch, StoreClosed
from onebus.log.stored import StoredBatch
from onebus.objects.feeds.message import FeedMessage, messages_of_all
from onebus.objects.feeds.names import FEEDS, ChannelName, channel_of_log
from onebus.objects.link import Link
from onebus.stores.base import Slice
from onebus.stores.following import SAFETY_POLL_SECONDS, follow


class Follower(Protocol):
    """Whoever wants the messages of some channels."""

    def arrived(self, messages: list[FeedMessage]) -> None:
        """Take messages of one channel, in order. The list is everybody's: do not change it."""

    def fell_behind(self) -> None:
        """Hear that messages may have been missed: what there is has to be read from the backlog."""

    def began_anew(self) -> None:
        """Hear that everything was wiped, and that ids begin again."""

    def ended(self) -> None:
        """Hear that nothing more is to be followed."""


class Tail:
    """Reads while there is anybody to read for. Each batch is decoded once, and only if somebody wants it."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._followers: dict[str | None, list[Follower]] = {}
        self._reading: asyncio.Task[None] | None = None
        self._opening = asyncio.Lock()

    async def add(self, channel: str | None, follower: Follower) -> None:
        """Hand everything that is published on a channel, of any site, to a follower from now on; None is all."""
        self._followers.setdefault(channel, []).append(follower)
        async with self._opening:
            if self._reading is None or self._reading.done():
                stat = await self._link.store.stat(FEEDS)
                after, epoch = (0, "") if stat is None else (stat.last_id, stat.epoch)
                self._reading = self._link.run(self._read(after, epoch), self._link.events, "onebus-feeds")

    def remove(self, channel: str | None, follower: Follower) -> None:
        followers = self._followers.get(channel, [])
        if follower in followers:
            followers.remove(follower)
        if not followers:
            self._followers.pop(channel, None)
        if not self._followers:
            self.close()

    def end(self) -> None:
        """Send all followers home."""
        for follower in self._all():
            follower.ended()

    def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    async def _read(self, after: int, epoch: str) -> None:
        while True:
            try:
                async for found in follow(self._link.store, FEEDS, after=after):
                    if epoch and found.epoch != epoch:
                        after = 0
                        for follower in self._all():
                            follower.began_anew()
                    elif found.batches[0].first_id > after + 1:
                        self._fall_behind()
                    after, epoch = found.batches[-1].last_id, found.epoch
                    await self._hand_out(found)
            except StoreClosed:
                return
            except Exception as error:
                # Nobody else reads for the followers: it goes on, and whatever it missed they read themselves.
                await self._link.events.emit("error", error)
                self._fall_behind()
                await asyncio.sleep(SAFETY_POLL_SECONDS)

    def _fall_behind(self) -> None:
        for follower in self._all():
            follower.fell_behind()

    async def _hand_out(self, found: Slice) -> None:
        for batch in found.batches:
            if batch.twin is None:
                continue
            followers = self._followers_of(channel_of_log(batch.twin.log))
            if not followers:
                continue
            try:
                messages = messages_of_all(batch)
            except CorruptBatch as error:
                await self._report(error, batch)
                continue
            for follower in followers:
                follower.arrived(messages)

    async def _report(self, error: CorruptBatch, batch: StoredBatch) -> None:
        error.add_note(f"in {FEEDS!r}, among the messages {batch.first_id} to {batch.last_id}")
        await self._link.events.emit("error", error)

    def _followers_of(self, channel: ChannelName) -> list[Follower]:
        return [*self._followers.get(channel.name, ()), *self._followers.get(None, ())]

    def _all(self) -> list[Follower]:
        return [follower for followers in self._followers.values() for follower in followers]
