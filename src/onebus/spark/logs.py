"""Which logs of a store are read: the partitions of topics, the channels of feeds, the messages of queues."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from onebus.errors import InvalidOption, TopicMissing
from onebus.log.names import PLACE_SEPARATOR, check_name
from onebus.objects.feeds.names import FEEDS, channel_name, channel_of_log
from onebus.objects.places import place_of_object
from onebus.objects.topics.description import Descriptions
from onebus.objects.topics.names import log_of
from onebus.stores.base import Store

TOPIC, FEED, QUEUE, DEAD = "topic", "feed", "queue", "dead"
KINDS = (TOPIC, FEED, QUEUE, DEAD)
"""What can be read; the dead letters of a queue are among it."""


class SourceLog(NamedTuple):
    """A log that is read, and what its rows say of it."""

    name: str
    topic: str
    partition: int = 0
    may_have_gaps: bool = False
    """Whether messages between others may be gone without being missed: because they are done, or were replaced."""

    def __str__(self) -> str:
        return f"{self.topic}:{self.partition}"


class Wanted(NamedTuple):
    """What somebody wants to read: some names, those that match a pattern, or some partitions of some topics."""

    kind: str
    names: tuple[str, ...] | None = None
    pattern: str | None = None
    assigned: dict[str, tuple[int, ...]] | None = None
    site: str | None = None

    async def logs(self, store: Store, *, all_must_exist: bool = True) -> list[SourceLog]:
        """Return the logs that are there now.

        Raises:
            TopicMissing: there is no topic of that name, and it must exist.
            InvalidOption: there is no queue or partition of that name.
        """
        match self.kind:
            case "topic":
                return await self._partitions(store, all_must_exist)
            case "feed":
                return await self._channels(store)
        return await self._queues(store)

    def names_topic(self, topic: str) -> bool:
        """Return whether a topic, channel or queue is wanted, whether it exists or not."""
        if self.pattern is not None:
            return bool(self._matching([topic]))
        return topic in (self.names or self.assigned or ())

    def log(self, topic: str, partition: int) -> SourceLog:
        """Return a partition of a topic, or a channel, which may not exist."""
        if self.kind == TOPIC:
            return SourceLog(log_of(topic, partition), topic, partition)
        return SourceLog(channel_name(topic, self.site).log, topic)

    def _matching(self, names: Sequence[str]) -> list[str]:
        return [name for name in names if re.fullmatch(self.pattern or "", name)]

    async def _partitions(self, store: Store, all_must_exist: bool) -> list[SourceLog]:
        descriptions = Descriptions(store)
        names: Sequence[str]
        if self.pattern is not None:
            names = self._matching(await descriptions.names())
        else:
            names = self.names or tuple(self.assigned or ())
        found: list[SourceLog] = []
        for name in names:
            try:
                topic = await descriptions.get(name)
            except TopicMissing:
                # One that matches a pattern may be deleted between the two questions.
                if all_must_exist and self.pattern is None:
                    raise
                continue
            numbers = range(topic.partitions) if self.assigned is None else self.assigned[name]
            if max(numbers) >= topic.partitions:
                raise InvalidOption(
                    f"The option assign names partition {max(numbers)}, but {name!r} has 0 to {topic.partitions - 1}."
                )
            found += (self.log(name, number)._replace(may_have_gaps=topic.compact) for number in numbers)
        return found

    async def _channels(self, store: Store) -> list[SourceLog]:
        names: Sequence[str] = self.names or ()
        if self.pattern is not None:
            channels = map(channel_of_log, await store.list_logs(FEEDS + PLACE_SEPARATOR))
            names = self._matching([channel.name for channel in channels if channel.site_id == self.site])
        return [self.log(name, 0) for name in names]

    async def _queues(self, store: Store) -> list[SourceLog]:
        tail = "" if self.kind == QUEUE else f"{PLACE_SEPARATOR}{DEAD}"
        start = place_of_object(QUEUE, "x")[:-1]
        there = {log.removeprefix(start).removesuffix(tail): log for log in await store.list_logs(start)}
        queues = {name: log for name, log in there.items() if log == f"{start}{name}{tail}"}
        names = self.names or self._matching([name for name in queues if PLACE_SEPARATOR not in name])
        for name in names:
            if name not in queues and self.kind == QUEUE:
                raise InvalidOption(f"The option subscribe names {name!r}, but there is no such queue.")
        return [SourceLog(check_name(f"{start}{name}{tail}"), name, may_have_gaps=True) for name in names]
