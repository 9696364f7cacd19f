"""Where messages go: to a partition of a topic, a channel, or a queue, just as if they were published there."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from onebus.log.mark import Mark
from onebus.log.retention import KEEP_ALL, Retention
from onebus.objects.feeds.limits import FeedLimits
from onebus.objects.feeds.names import FEEDS, channel_name
from onebus.objects.places import place_of_object
from onebus.objects.topics.compaction import compact
from onebus.objects.topics.description import Descriptions, TopicDescription
from onebus.objects.topics.names import log_of
from onebus.objects.topics.topic import COMPACT_AFTER
from onebus.spark.logs import QUEUE
from onebus.spark.sink.options import WriteOptions
from onebus.stores.base import FOREVER, Store


class Target(NamedTuple):
    """What rows are written to; only topics have more than one partition."""

    name: str
    partition: int = 0


@dataclass(slots=True)
class Outlet:
    """The log of a target, and how messages are appended to it."""

    store: Store
    log: str
    mirror: str | None = None
    retain: Retention = KEEP_ALL
    mirror_retain: Retention = KEEP_ALL
    compacts: bool = False
    _first_id: int = 0

    async def append(self, staging: str, batches: Sequence[int], mark: Mark) -> None:
        """Move batches here from where they are staged."""
        first_id = await self.store.transfer(
            staging,
            self.log,
            batches,
            mirror=self.mirror,
            retain=self.retain,
            mirror_retain=self.mirror_retain,
            mark=mark,
        )
        self._first_id = self._first_id or first_id

    async def finish(self) -> None:
        """Forget what was replaced, if this topic wants that and enough has come since the last time."""
        if self.compacts and self._first_id:
            stat = await self.store.stat(self.log)
            if stat is not None and self._first_id // COMPACT_AFTER < (stat.last_id + 1) // COMPACT_AFTER:
                await compact(self.store, self.log)


async def describe(store: Store, options: WriteOptions, topic: str) -> TopicDescription:
    """Return what a topic is; one that does not exist comes into being."""
    wanted = TopicDescription.of(options.partitions, KEEP_ALL, compact=False)
    return await Descriptions(store).ensure(topic, wanted)


def log_of_target(options: WriteOptions, target: Target) -> str:
    """Return the log in which the messages of a target are."""
    match options.kind:
        case "topic":
            return log_of(target.name, target.partition)
        case "feed":
            return channel_name(target.name, options.site).log
    return place_of_object(QUEUE, target.name)


async def open_outlet(store: Store, options: WriteOptions, target: Target) -> Outlet:
    """Return how to append to a target, which comes into being if it does not exist."""
    log = log_of_target(options, target)
    match options.kind:
        case "topic":
            topic = await describe(store, options, target.name)
            return Outlet(store, log, retain=topic.retention, compacts=topic.compact)
        case "feed":
            limits = FeedLimits()
            return Outlet(store, log, FEEDS, limits.of_channel(), limits.of_all)
    await store.touch(log, ttl_seconds=options.ttl_seconds or FOREVER, create=True)
    return Outlet(store, log)
