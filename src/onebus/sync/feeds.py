"""Feeds for blocking code."""

from collections import deque
from collections.abc import AsyncGenerator, Iterator
from typing import Any, Self

from onebus.errors import BusError
from onebus.objects.feeds.feeds import Feeds as AsyncFeeds
from onebus.objects.feeds.message import FeedMessage
from onebus.objects.feeds.subscription import FeedSubscription as AsyncSubscription
from onebus.sync.events import Handler, Relay, checked_plain
from onebus.sync.iteration import Batches
from onebus.sync.portal import Portal


class FeedSubscription:
    """The messages of a channel, or of all channels, as an iterator; see `onebus.objects.feeds.subscription`.

    It has begun when `Bus.subscribe` returns: what is published after that arrives. It may be iterated over again and
    again, and goes on where the last loop was left. `close` ends it, and so does leaving it as a context.
    """

    def __init__(self, portal: Portal, subscription: AsyncSubscription) -> None:
        self._portal = portal
        self._subscription = subscription
        self._batches = Batches(_messages(subscription))
        self._ready: deque[FeedMessage] = deque()
        self._is_closed = False

    @property
    def channel(self) -> str | None:
        return self._subscription.channel

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[FeedMessage]:
        return self.messages()

    def messages(self, *, timeout: float | None = None) -> Iterator[FeedMessage]:
        """Iterate over the messages; the loop ends when nothing has come for ``timeout`` seconds.

        Raises:
            MessagesMissed: some were forgotten before they were read; another loop goes on with those after them.
        """
        while self._ready or self._take(timeout):
            yield self._ready.popleft()

    def close(self) -> None:
        """End the subscription: loops end."""
        self._is_closed = True
        self._ready.clear()
        self._portal.finish(self._close())

    async def _close(self) -> None:
        self._subscription.close()
        await self._batches.close()

    def _take(self, timeout: float | None) -> bool:
        if self._is_closed:
            return False
        try:
            self._ready.extend(self._portal.call(self._batches.take(timeout)))
        except BusError:
            # A generator is over when it has raised something; the subscription is not.
            self._batches = Batches(_messages(self._subscription))
            raise
        return bool(self._ready)


class Feeds:
    """The channels of a bus; see `onebus.objects.feeds.feeds.Feeds`. It is `Bus.feeds`."""

    def __init__(self, portal: Portal, feeds: AsyncFeeds) -> None:
        self._portal = portal
        self._feeds = feeds

    def publish(self, channel: str, data: Any, **options: Any) -> int:
        """Publish JSON data on a channel, and return its id there once it is stored."""
        return self._portal.call(self._publish(channel, data, options))

    async def _publish(self, channel: str, data: Any, options: dict[str, Any]) -> int:
        return await self._feeds.publish(channel, data, **options)

    def publish_many(self, channel: str, messages: list[Any], **options: Any) -> list[int]:
        """Publish several messages on a channel, in order; much faster than one by one."""
        return self._portal.call(self._publish_many(channel, messages, options))

    async def _publish_many(self, channel: str, messages: list[Any], options: dict[str, Any]) -> list[int]:
        published = [self._feeds.publish(channel, data, **options) for data in messages]
        return [await one for one in published]

    def subscribe(
        self, channel: str | None = None, callback: Handler | None = None, *, last_id: int = -1
    ) -> FeedSubscription:
        """Follow a channel of all sites, or all channels, with an iterator or with a callback in another thread."""
        return self._portal.call(self._subscribe(False, channel, callback, last_id))

    def local_subscribe(
        self, channel: str | None = None, callback: Handler | None = None, *, last_id: int = -1
    ) -> FeedSubscription:
        """Follow a channel, or all channels, of the current site and of those that all sites share."""
        return self._portal.call(self._subscribe(True, channel, callback, last_id))

    async def _subscribe(
        self, is_local: bool, channel: str | None, callback: Handler | None, last_id: int
    ) -> FeedSubscription:
        subscribe = self._feeds.local_subscribe if is_local else self._feeds.subscribe
        relay = None if callback is None else Relay(self._portal, checked_plain(callback))
        subscription = subscribe(channel, relay, last_id=last_id)
        await subscription
        return FeedSubscription(self._portal, subscription)

    def unsubscribe(self, channel: str | None = None, callback: Handler | None = None) -> bool:
        """End the subscriptions of a channel that have a callback, or one callback; return whether there were any."""
        return self._portal.call(self._unsubscribe(channel, callback))

    async def _unsubscribe(self, channel: str | None, callback: Handler | None) -> bool:
        return self._feeds.unsubscribe(channel, callback)

    # Looking

    def backlog(self, channel: str, last_id: int = 0, *, site_id: str | None = None) -> list[FeedMessage]:
        """Return the messages of a channel that follow an id, as far as they are remembered."""
        return self._portal.call(self._feeds.backlog(channel, last_id, site_id=site_id))

    def global_backlog(self, last_id: int = 0) -> list[FeedMessage]:
        """Return the newest messages of all channels of all sites that follow a global id and are remembered."""
        return self._portal.call(self._feeds.global_backlog(last_id))

    def last_id(self, channel: str, *, site_id: str | None = None) -> int:
        """Return the id of the newest message of a channel; 0 if there has never been one."""
        return self._portal.call(self._feeds.last_id(channel, site_id=site_id))

    def last_ids(self, *channels: str, site_id: str | None = None) -> dict[str, int]:
        """Return the ids of the newest messages of several channels."""
        return self._portal.call(self._feeds.last_ids(*channels, site_id=site_id))

    def last_message(self, channel: str, *, site_id: str | None = None) -> FeedMessage | None:
        """Return the newest message of a channel, if it is remembered."""
        return self._portal.call(self._feeds.last_message(channel, site_id=site_id))

    # Switching

    def off(self, *, disable_publish: bool = True) -> None:
        """End all subscriptions and accept none; publish nothing either, unless that is to go on."""
        self._portal.call(self._off(disable_publish))

    async def _off(self, disable_publish: bool) -> None:
        self._feeds.off(disable_publish=disable_publish)

    def on(self) -> None:
        """Accept subscriptions and publish again."""
        self._feeds.on()

    def reset(self) -> None:
        """Forget all messages of all channels. Ids begin again, and subscribers are told so by that."""
        self._portal.call(self._feeds.reset())


async def _messages(subscription: AsyncSubscription) -> AsyncGenerator[FeedMessage]:
    async for message in subscription:
        yield message
