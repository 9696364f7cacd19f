"""Feeds: what is published on a channel reaches everybody who follows it, now or a little later.

A channel is a log with a short past, and every message is also in the one log of all channels, written in the same
step. Each process reads that one log, however many subscribers and held requests it has.
"""

import asyncio
from collections.abc import Awaitable
from typing import Any

from onebus.errors import BusError, MessagesMissed, NotConnected, Overloaded
from onebus.events import Handler
from onebus.log.batch import Kind
from onebus.log.retention import Retention
from onebus.log.writer import LogWriter
from onebus.objects.feeds.backlog import Backlogs
from onebus.objects.feeds.limits import FeedLimits
from onebus.objects.feeds.message import EVERYBODY, Audience, FeedMessage, Ids, audience_of, entry_of
from onebus.objects.feeds.names import FEEDS, ChannelName, SiteLookup, channel_name
from onebus.objects.feeds.subscription import FeedSubscription
from onebus.objects.feeds.tail import Tail
from onebus.objects.link import Link
from onebus.objects.lull import Lull
from onebus.payload import pack_json


class Feeds:
    """The channels of a bus: publish to them, subscribe to them, and read what they remember."""

    def __init__(
        self, link: Link, *, limits: FeedLimits | None = None, site_id_lookup: SiteLookup | None = None
    ) -> None:
        self.site_id_lookup = site_id_lookup
        self._link = link
        self._limits = limits or FeedLimits()
        self._retention = self._limits.of_channel()
        self._retention_of_all = self._limits.of_all
        self.backlogs = Backlogs(link, self._limits)
        """What channels remember."""
        self.tail = Tail(link)
        """Where a door hears of what is published, once for all its clients."""
        self.lull = Lull()
        """Where those who publish wait for each other."""
        self._writer = LogWriter(
            self._append, clock=link.clock, limits=link.limits, unheard=self._publish_failed, gather=self.lull.come
        )
        self._retain: dict[str, Retention] = {}
        self._subscriptions: list[FeedSubscription] = []
        self._callbacks: list[tuple[FeedSubscription, Handler]] = []
        self._publishes = True
        self._subscribes = True

    # Publishing

    def publish(
        self,
        channel: str,
        data: Any,
        *,
        user_ids: Ids | None = None,
        group_ids: Ids | None = None,
        client_ids: Ids | None = None,
        site_id: str | None = None,
        max_backlog_size: int | None = None,
        max_backlog_age: float | None = None,
    ) -> Awaitable[int]:
        """Publish JSON data on a channel, and return an awaitable that gives the message's id in its channel.

        It is on its way even if nobody awaits; then a failure is an ``error`` event. ``user_ids``, ``group_ids`` and
        ``client_ids`` say who may see it through the web door; subscribers in Python see everything.
        ``max_backlog_size`` and ``max_backlog_age`` (seconds) replace the usual limits of the channel for this message:
        nothing older is kept than that, nor the message itself any longer. While publishing is off the id is 0.

        Raises:
            InvalidName: no channel can have this name.
            InvalidArgument: nobody could see the message.
            NotSerializable, PayloadTooLarge: the data cannot be stored.
        """
        if not self._publishes:
            return _nothing()
        name = self._channel(channel, site_id)
        audience = audience_of(channel, user_ids, group_ids, client_ids)
        ends_ms = None if max_backlog_age is None else self._link.clock() + round(max_backlog_age * 1000)
        if max_backlog_size is not None or max_backlog_age is not None:
            self._retain[name.log] = self._limits.of_channel(max_backlog_size, max_backlog_age)
        return self._post(name.log, data, audience, ends_ms)

    def _post(self, log: str, data: Any, audience: Audience, ends_ms: int | None) -> Awaitable[int]:
        self._attach()
        if audience is EVERYBODY and ends_ms is None:
            value = pack_json(data)
            try:
                return self._writer.post_value(log, value, Kind.JSON)
            except Overloaded:
                return self._writer.append_value(log, value, Kind.JSON)
        entry = entry_of(data, audience, ends_ms)
        try:
            return self._writer.post(log, entry)
        except Overloaded:
            return self._writer.append(log, entry)

    async def _append(self, log: str, blob: bytes) -> int:
        retain = self._retain.pop(log, self._retention)
        return await self._link.store.append(
            log, blob, mirror=FEEDS, retain=retain, mirror_retain=self._retention_of_all
        )

    def _publish_failed(self, log: str, error: Exception) -> None:
        self._link.log.debug("publishing to %s failed: %s", log, error)
        self._link.tell(self._link.events, "error", error)

    # Subscribing

    def subscribe(
        self, channel: str | None = None, callback: Handler | None = None, *, last_id: int = -1
    ) -> FeedSubscription:
        """Follow a channel of all sites, or all channels, with an async iterator or with a callback.

        ``last_id`` is the id of the message that was read last: 0 begins with the whole backlog, -1 with what is
        published from now on, -2 with the newest message, -3 with the two newest, and so on. Ids are those of the
        channel, of the current site if there are several; for all channels they are global ids. Who has read more than
        there is has read it before everything was wiped, and begins with the backlog.

        A callback is a plain or async function that is called with each message, one after the other; await the
        subscription to be sure that it has begun. What a callback raises is an ``error`` event.
        """
        return self._subscribe(channel, callback, last_id, None)

    def local_subscribe(
        self, channel: str | None = None, callback: Handler | None = None, *, last_id: int = -1
    ) -> FeedSubscription:
        """Follow a channel, or all channels, of the current site and of those that all sites share."""
        return self._subscribe(channel, callback, last_id, self._current_site())

    def _subscribe(
        self, channel: str | None, callback: Handler | None, last_id: int, site_id: str | None
    ) -> FeedSubscription:
        own = None if channel is None else self._channel(channel, None)
        subscription = FeedSubscription(
            self.tail, self.backlogs, channel, own, last_id=last_id, site_id=site_id, closed=self._forget
        )
        if not self._subscribes:
            subscription.close()
            return subscription
        self._attach()
        self._subscriptions.append(subscription)
        if callback is not None:
            self._callbacks.append((subscription, callback))
            self._link.run(self._call_back(subscription, callback), self._link.events, f"onebus-callback {channel}")
        return subscription

    def unsubscribe(self, channel: str | None = None, callback: Handler | None = None) -> bool:
        """End the subscriptions of a channel that have a callback, or one callback; return whether there were any."""
        ended = [
            subscription
            for subscription, called in self._callbacks
            if subscription.channel == channel and callback in (None, called)
        ]
        for subscription in ended:
            subscription.close()
        return bool(ended)

    async def _call_back(self, subscription: FeedSubscription, callback: Handler) -> None:
        while True:
            try:
                async for message in subscription:
                    await self._link.events.call(callback, message)
            except MessagesMissed as error:
                await self._link.events.emit("error", error)
            except NotConnected:
                return
            else:
                return

    def _forget(self, subscription: FeedSubscription) -> None:
        if subscription in self._subscriptions:
            self._subscriptions.remove(subscription)
        self._callbacks = [one for one in self._callbacks if one[0] is not subscription]

    # Looking

    async def backlog(self, channel: str, last_id: int = 0, *, site_id: str | None = None) -> list[FeedMessage]:
        """Return the messages of a channel that follow an id, as far as they are remembered."""
        return await self.backlogs.of(self._channel(channel, site_id)).after(last_id)

    async def global_backlog(self, last_id: int = 0) -> list[FeedMessage]:
        """Return the newest messages of all channels of all sites that follow a global id and are remembered."""
        everything = self.backlogs.of(None)
        newest = await everything.last_id()
        found = await everything.after(max(last_id, newest - self._limits.max_global_backlog_size))
        names = {ChannelName(message.channel, message.site_id) for message in found}
        firsts = dict(
            zip(names, await asyncio.gather(*(self.backlogs.of(name).first_id() for name in names)), strict=True)
        )
        return [
            message for message in found if message.message_id >= firsts[ChannelName(message.channel, message.site_id)]
        ]

    async def last_id(self, channel: str, *, site_id: str | None = None) -> int:
        """Return the id of the newest message of a channel; 0 if there has never been one."""
        return await self.backlogs.of(self._channel(channel, site_id)).last_id()

    async def last_ids(self, *channels: str, site_id: str | None = None) -> dict[str, int]:
        """Return the ids of the newest messages of several channels."""
        ids = await asyncio.gather(*(self.last_id(channel, site_id=site_id) for channel in channels))
        return dict(zip(channels, ids, strict=True))

    async def last_message(self, channel: str, *, site_id: str | None = None) -> FeedMessage | None:
        """Return the newest message of a channel, if it is remembered."""
        newest = await self.last_id(channel, site_id=site_id)
        found = await self.backlog(channel, newest - 1, site_id=site_id)
        return found[-1] if found else None

    # Switching

    def off(self, *, disable_publish: bool = True) -> None:
        """End all subscriptions and accept none; publish nothing either, unless that is to go on."""
        self._subscribes = False
        self._publishes = not disable_publish
        for subscription in list(self._subscriptions):
            subscription.close()
        self.tail.end()

    @property
    def is_on(self) -> bool:
        """Whether subscriptions are accepted."""
        return self._subscribes

    def on(self) -> None:
        """Accept subscriptions and publish again."""
        self._subscribes = self._publishes = True

    async def reset(self) -> None:
        """Forget all messages of all channels. Ids begin again, and subscribers are told so by that."""
        await self._writer.flush()
        for channel in await self.backlogs.channels():
            await self._link.store.drop(channel.log)
        await self._link.store.drop(FEEDS)

    # Life

    def _attach(self) -> None:
        self._link.check_connected()
        self._link.enter(self)

    async def detach(self) -> None:
        """Store what was published, and end all subscriptions."""
        for subscription in list(self._subscriptions):
            subscription.close()
        self.tail.close()
        try:
            await self._writer.flush()
        except BusError as error:
            await self._link.events.emit("error", error)

    def _channel(self, channel: str, site_id: str | None) -> ChannelName:
        return channel_name(channel, self._current_site() if site_id is None else site_id)

    def _current_site(self) -> str | None:
        return self.site_id_lookup() if self.site_id_lookup is not None else None


async def _nothing() -> int:
    return 0
