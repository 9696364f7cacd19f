"""The bus: the connection to its stores, and the place where its objects come from."""

import logging
from collections.abc import Awaitable, Iterable, Sequence
from typing import Any, Final, Self

from onebus.errors import AlreadyConnected, InvalidArgument, NotConnected
from onebus.events import Emitter, Handler
from onebus.log.retention import KEEP_ALL, Retention
from onebus.log.writer import WriterLimits
from onebus.objects.cache import DistributedCache
from onebus.objects.channel import Channel
from onebus.objects.feeds.feeds import Feeds
from onebus.objects.feeds.limits import FeedLimits
from onebus.objects.feeds.message import FeedMessage
from onebus.objects.feeds.names import SiteLookup
from onebus.objects.feeds.subscription import FeedSubscription
from onebus.objects.link import Clock, Link
from onebus.objects.persistable import Persisted
from onebus.objects.pubsub import PubSub
from onebus.objects.queue import DEFAULT_TTL_SECONDS, Queue
from onebus.objects.queues import QueueState, queue_states
from onebus.objects.service import Service
from onebus.objects.topics.consumer import TopicConsumer
from onebus.objects.topics.description import DEFAULT_PARTITIONS, Descriptions
from onebus.objects.topics.topic import Topic
from onebus.objects.workqueue import LEASE_SECONDS, WorkQueue
from onebus.stores import Store, StoreOptions, create_store

DEFAULT_URL: Final = "sqlite:///onebus.db"

_LEVELS = {"error": logging.ERROR, "warning": logging.WARNING, "info": logging.INFO, "debug": logging.DEBUG}


class Bus(Emitter):
    """One message bus on one store, or on several.

    ``url`` says where it lives: ``sqlite:///bus.db``, ``postgresql://…``, ``mysql://…``, ``redis://…``,
    ``redis+sentinel://…``, ``redis+cluster://…``, ``memory://name``, or a list of them, over which the objects are
    spread. Use it in ``async with``, or call `connect` and `disconnect`. ``log_level`` is ``error``, ``warning``,
    ``info`` or ``debug``, and is what its logger has already unless it is given. ``feed_limits`` say how much channels
    remember, and ``site_id_lookup`` returns the site that a program with several of them works for at the moment.

    Events: ``online``, ``offline``, ``error`` (error).
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
        super().__init__()
        self.url = url
        self._options = StoreOptions(deadline_seconds=deadline_seconds, clock=clock)
        self._store: Store | None = None
        self._is_leaving = False
        limits = WriterLimits(max_message_bytes=max_message_bytes, max_waiting_bytes=16 * 1024 * 1024)
        self.link = Link(self.events, clock=clock, limits=limits)
        """What its objects share."""
        self.feeds = Feeds(self.link, limits=feed_limits, site_id_lookup=site_id_lookup)
        """The channels to which `publish` publishes."""
        self._level = _checked_level(log_level)
        self.with_log(log or logging.getLogger("onebus"))

    @classmethod
    def create(cls, url: str | Sequence[str] = DEFAULT_URL, **options: Any) -> Self:
        """Create a bus, as its constructor does."""
        return cls(url, **options)

    # Life

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.disconnect()

    async def connect(self) -> None:
        """Connect to the stores; ``online`` is emitted before this returns.

        Raises:
            AlreadyConnected: it is connected.
            NotConnected: it was disconnected before it was connected.
            UsedAfterFork: it was connected before this process was forked.
            StoreUnavailable, AccessDenied, InvalidUrl, MissingDriver: a store cannot be opened.
        """
        self.link.check_process()
        if self._store is not None:
            raise AlreadyConnected("already connected")
        store = self._store = create_store(self.url, self._options)
        try:
            await store.open()
        except BaseException:
            if self._store is store:
                self._store = None
            raise
        if self._store is not store:
            await store.close()
            raise NotConnected("The bus was disconnected before it was connected.")
        self.link.connected(store)
        store.health.on_change(self._health_changed)
        self.log.debug("connected to %s", store.url)
        await self.events.emit("online")

    async def disconnect(self) -> None:
        """Detach every object and close the stores; ``offline`` is emitted. Disconnecting twice does nothing.

        What was pushed is stored, and what was fetched but not handed over goes back, before this returns. In a forked
        process this does nothing.
        """
        if self._store is None or self._is_leaving or self.link.belongs_to_parent:
            return
        store, self._is_leaving = self._store, True
        store.health.off_change(self._health_changed)
        was_online = store.health.is_online
        try:
            await self.link.disconnected()
        finally:
            await store.close()
            self._store, self._is_leaving = None, False
        self.log.debug("disconnected from %s", store.url)
        if was_online:
            await self.events.emit("offline")

    @property
    def is_connected(self) -> bool:
        """Whether it is connected, or is about to be."""
        return self._store is not None

    @property
    def is_online(self) -> bool:
        """Whether all stores can be reached."""
        return self._store is not None and self._store.health.is_online

    def _health_changed(self, online: bool) -> None:
        event = "online" if online else "offline"
        self.log.warning("%s", event) if not online else self.log.info("%s", event)
        self.link.tell(self.events, event)

    # Logging

    @property
    def log(self) -> logging.Logger:
        return self.link.log

    def with_log(self, log: logging.Logger) -> Self:
        """Write to another logger, which gets the level of this bus if it has one; returns the bus."""
        self.link.log = log
        if self._level is not None:
            log.setLevel(self._level)
        self._usual_level = log.level
        return self

    def debug(self, on: bool = True) -> Self:
        """Write debug messages to the log, or do so no more."""
        self.log.setLevel(logging.DEBUG if on else self._usual_level)
        return self

    # Objects

    def queue(self, name: str, *, ttl: float = DEFAULT_TTL_SECONDS, max_size: int | None = None) -> Queue:
        """Return an object for the queue `name`; attach it to use it.

        ``ttl`` is how many seconds the queue lives without anybody attached. With ``max_size`` a push to a queue
        that holds so many unfinished messages fails with `LogFull`.
        """
        return Queue(self.link, name, ttl=ttl, max_size=max_size)

    def work_queue(
        self, name: str, *, lease_seconds: float = LEASE_SECONDS, max_attempts: int | None = None
    ) -> WorkQueue:
        """Return an object that hands out the messages of the queue `name` to workers that come back with an id.

        Who is handed a message has ``lease_seconds`` to finish it. After ``max_attempts`` deliveries it goes to the
        dead letters.
        """
        return WorkQueue(self.link, name, lease_seconds=lease_seconds, max_attempts=max_attempts)

    async def queues(self, prefix: str = "") -> list[QueueState]:
        """Return the state of every queue whose name starts with `prefix`, by name.

        A queue that has ended is among them as long as dead letters or delayed messages of it are kept.
        """
        return await queue_states(self.link.store, prefix)

    def channel(self, name: str, local: str = "local", remote: str = "remote") -> Channel:
        """Return one end of the channel `name` between two peers; connect it to use it."""
        return Channel(self.link, name, local, remote)

    def pubsub(self, name: str) -> PubSub:
        """Return an object to publish to, and to receive from, all who are subscribed to `name` at that moment."""
        return PubSub(self.link, name)

    def persistify(self, name: str, target: Any, properties: Iterable[str]) -> Persisted:
        """Return an object that stands for `target`, and can save and load some of its properties."""
        return Persisted(self.link, name, target, properties)

    def cache(self, name: str, *, app_version: str = "") -> DistributedCache:
        """Return a dictionary that all processes share; attach it to use it.

        Processes with another ``app_version`` have another one: a new version of a program may keep other things.
        """
        return DistributedCache(self.link, name, app_version=app_version, site_id_lookup=self.feeds.site_id_lookup)

    # Topics

    def topic(
        self,
        name: str,
        *,
        partitions: int = DEFAULT_PARTITIONS,
        retention: Retention = KEEP_ALL,
        compact: bool = False,
    ) -> Topic:
        """Return an object to publish to the topic `name`, to consume it and to look at it.

        ``partitions``, ``retention``, which is what each partition keeps, and ``compact``, with which only the last
        message of each key stays, are for a topic that does not exist yet: one that does is as it is.
        """
        return Topic(self.link, name, partitions=partitions, retention=retention, compact=compact)

    async def topics(self, prefix: str = "") -> list[str]:
        """Return the names of all topics that start with `prefix`, sorted."""
        return await Descriptions(self.link.store).names(prefix)

    def consume(self, *topics: str, group: str, **options: Any) -> TopicConsumer:
        """Return a member of a group that reads several topics at once; takes the options of `Topic.consume`."""
        return TopicConsumer(self.link, topics, group, **options)

    # Feeds

    def publish(self, channel: str, data: Any, **options: Any) -> Awaitable[int]:
        """Publish JSON data on a channel such as ``/chat``; takes the options of `Feeds.publish`.

        Returns an awaitable that gives the message's id in its channel.
        """
        return self.feeds.publish(channel, data, **options)

    def subscribe(
        self, channel: str | None = None, callback: Handler | None = None, *, last_id: int = -1
    ) -> FeedSubscription:
        """Follow a channel, or all channels, with an async iterator or with a callback; see `Feeds.subscribe`."""
        return self.feeds.subscribe(channel, callback, last_id=last_id)

    def unsubscribe(self, channel: str | None = None, callback: Handler | None = None) -> bool:
        """End the subscriptions of a channel that have a callback, or one callback; return whether there were any."""
        return self.feeds.unsubscribe(channel, callback)

    async def backlog(self, channel: str, last_id: int = 0, *, site_id: str | None = None) -> list[FeedMessage]:
        """Return the messages of a channel that follow an id, as far as they are remembered."""
        return await self.feeds.backlog(channel, last_id, site_id=site_id)

    async def last_id(self, channel: str, *, site_id: str | None = None) -> int:
        """Return the id of the newest message of a channel; 0 if there has never been one."""
        return await self.feeds.last_id(channel, site_id=site_id)

    def service(self, name: str) -> Service:
        """Return an object to serve requests to the service `name`, or to make them."""
        return Service(self.link, name)


def _checked_level(level: str | None) -> int | None:
    if level is None:
        return None
    if level not in _LEVELS:
        raise InvalidArgument(f"log_level must be one of {', '.join(_LEVELS)}, but is {level!r}.")
    return _LEVELS[level]
