"""The bus for blocking code."""

import logging
from collections.abc import Iterable, Sequence
from typing import Any, Self

from onebus.bus import DEFAULT_URL
from onebus.bus import Bus as AsyncBus
from onebus.log.retention import KEEP_ALL, Retention
from onebus.objects.feeds.limits import FeedLimits
from onebus.objects.feeds.message import FeedMessage
from onebus.objects.feeds.names import SiteLookup
from onebus.objects.link import Clock
from onebus.objects.queue import DEFAULT_TTL_SECONDS
from onebus.objects.queues import QueueState
from onebus.objects.topics.description import DEFAULT_PARTITIONS
from onebus.sync.cache import DistributedCache
from onebus.sync.channel import Channel
from onebus.sync.events import Emitter, Handler
from onebus.sync.feeds import Feeds, FeedSubscription
from onebus.sync.persistable import Persisted
from onebus.sync.portal import Portal
from onebus.sync.pubsub import PubSub
from onebus.sync.queue import Queue
from onebus.sync.service import Service
from onebus.sync.topics import Topic, TopicConsumer


class Bus(Emitter):
    """One message bus for blocking code; see `onebus.Bus`. Use it in ``with``, or call `connect` and `disconnect`.

    It runs in a thread of its own, and may be used by any number of threads. A process that is forked needs a bus of
    its own. Handlers of events run in other threads, so they may block and may use the bus.
    """

    def __init__(
        self,
        url: str | Sequence[str] = DEFAULT_URL,
        *,
        log: logging.Logger | None = None,
        log_level: str | None = None,
        deadline_seconds: float = 10.0,
        max_message_bytes: int = 1024 * 1024,
        clock: Clock | None = None,
        feed_limits: FeedLimits | None = None,
        site_id_lookup: SiteLookup | None = None,
    ) -> None:
        self.wrapped = AsyncBus(
            url,
            log=log,
            log_level=log_level,
            deadline_seconds=deadline_seconds,
            max_message_bytes=max_message_bytes,
            clock=clock,
            feed_limits=feed_limits,
            site_id_lookup=site_id_lookup,
        )
        """The bus that runs in the thread."""
        self.portal = Portal()
        """The way into the thread."""
        super().__init__(self.portal, self.wrapped.events)
        self.feeds = Feeds(self.portal, self.wrapped.feeds)
        """The channels to which `publish` publishes."""

    @classmethod
    def create(cls, url: str | Sequence[str] = DEFAULT_URL, **options: Any) -> Self:
        """Create a bus, as its constructor does."""
        return cls(url, **options)

    # Life

    def __enter__(self) -> Self:
        self.connect()
        return self

    def __exit__(self, *_: object) -> None:
        self.disconnect()

    @property
    def url(self) -> str | Sequence[str]:
        return self.wrapped.url

    def connect(self) -> None:
        """Connect to the stores; see `onebus.Bus.connect`."""
        self.portal.call(self.wrapped.connect())

    def disconnect(self) -> None:
        """Detach every object and close the stores; see `onebus.Bus.disconnect`. The thread of the bus ends.

        Calls that still wait in other threads fail with `NotConnected`. In a forked process this does nothing.
        """
        self.portal.finish(self.wrapped.disconnect())
        # Another thread, or a handler of `offline`, may have connected it again meanwhile.
        self.portal.stop(unless=lambda: self.wrapped.is_connected)

    @property
    def is_online(self) -> bool:
        """Whether all stores can be reached."""
        return self.wrapped.is_online

    # Logging

    @property
    def log(self) -> logging.Logger:
        return self.wrapped.log

    def with_log(self, log: logging.Logger) -> Self:
        """Write to another logger; returns the bus."""
        self.wrapped.with_log(log)
        return self

    def debug(self, on: bool = True) -> Self:
        """Write debug messages to the log, or do so no more."""
        self.wrapped.debug(on)
        return self

    # Objects

    def queue(self, name: str, *, ttl: float = DEFAULT_TTL_SECONDS, max_size: int | None = None) -> Queue:
        """Return an object for the queue `name`; see `onebus.Bus.queue`."""
        return Queue(self.portal, self.wrapped.queue(name, ttl=ttl, max_size=max_size))

    def queues(self, prefix: str = "") -> list[QueueState]:
        """Return the state of every queue whose name starts with `prefix`; see `onebus.Bus.queues`."""
        return self.portal.call(self.wrapped.queues(prefix))

    def channel(self, name: str, local: str = "local", remote: str = "remote") -> Channel:
        """Return one end of the channel `name`; see `onebus.Bus.channel`."""
        return Channel(self.portal, self.wrapped.channel(name, local, remote))

    def pubsub(self, name: str) -> PubSub:
        """Return an object to publish to, and to receive from, `name`; see `onebus.Bus.pubsub`."""
        return PubSub(self.portal, self.wrapped.pubsub(name))

    def persistify(self, name: str, target: Any, properties: Iterable[str]) -> Persisted:
        """Return an object that stands for `target`; see `onebus.Bus.persistify`."""
        return Persisted(self.portal, self.wrapped.persistify(name, target, properties))

    def cache(self, name: str, *, app_version: str = "") -> DistributedCache:
        """Return a dictionary that all processes share; see `onebus.Bus.cache`."""
        return DistributedCache(self.portal, self.wrapped.cache(name, app_version=app_version))

    def topic(
        self,
        name: str,
        *,
        partitions: int = DEFAULT_PARTITIONS,
        retention: Retention = KEEP_ALL,
        compact: bool = False,
    ) -> Topic:
        """Return an object to publish to the topic `name`, to consume it and to look at it; see `onebus.Bus.topic`."""
        topic = self.wrapped.topic(name, partitions=partitions, retention=retention, compact=compact)
        return Topic(self.portal, topic)

    def topics(self, prefix: str = "") -> list[str]:
        """Return the names of all topics that start with `prefix`, sorted."""
        return self.portal.call(self.wrapped.topics(prefix))

    def consume(self, *topics: str, group: str, **options: Any) -> TopicConsumer:
        """Return a member of a group that reads several topics at once; see `onebus.Bus.consume`."""
        return TopicConsumer(self.portal, self.wrapped.consume(*topics, group=group, **options))

    def publish(self, channel: str, data: Any, **options: Any) -> int:
        """Publish JSON data on a channel, and return its id there once it is stored; see `onebus.Bus.publish`."""
        return self.feeds.publish(channel, data, **options)

    def subscribe(
        self, channel: str | None = None, callback: Handler | None = None, *, last_id: int = -1
    ) -> FeedSubscription:
        """Follow a channel, or all channels, with an iterator or with a callback; see `onebus.Bus.subscribe`."""
        return self.feeds.subscribe(channel, callback, last_id=last_id)

    def unsubscribe(self, channel: str | None = None, callback: Handler | None = None) -> bool:
        """End the subscriptions of a channel that have a callback; see `onebus.Bus.unsubscribe`."""
        return self.feeds.unsubscribe(channel, callback)

    def backlog(self, channel: str, last_id: int = 0, *, site_id: str | None = None) -> list[FeedMessage]:
        """Return the messages of a channel that follow an id, as far as they are remembered."""
        return self.feeds.backlog(channel, last_id, site_id=site_id)

    def last_id(self, channel: str, *, site_id: str | None = None) -> int:
        """Return the id of the newest message of a channel; 0 if there has never been one."""
        return self.feeds.last_id(channel, site_id=site_id)

    def service(self, name: str) -> Service:
        """Return an object to serve requests to the service `name`, or to make them; see `onebus.Bus.service`."""
        return Service(self.portal, self.wrapped.service(name))
