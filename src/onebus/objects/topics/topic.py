"""A topic: messages in partitions, which stay until retention removes them, for any number of groups to read."""

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, overload

from onebus.errors import BusError, InvalidArgument, VersionConflict
from onebus.log.batch import Entry, count_of
from onebus.log.retention import KEEP_ALL, Retention
from onebus.log.writer import LogWriter
from onebus.message import Message
from onebus.objects.link import Link
from onebus.objects.moments import first_since
from onebus.objects.topics.compaction import compact
from onebus.objects.topics.consumer import TopicConsumer
from onebus.objects.topics.cursors import Cursors
from onebus.objects.topics.description import DEFAULT_PARTITIONS, MAX_PARTITIONS, Descriptions, TopicDescription
from onebus.objects.topics.membership import members_of
from onebus.objects.topics.names import checked_group, log_of, place_of_topic
from onebus.objects.topics.stretch import stretches_after
from onebus.payload import Data, pack, pack_alike

Key = bytes | str

COMPACT_AFTER: Final = 10_000
"""How many messages of a partition one process publishes before it looks what they have replaced."""


class Place(NamedTuple):
    """Where a message of a topic is."""

    partition: int
    id: int


class Places(Sequence[Place]):
    """Where some messages of one partition are; each place is made when somebody looks at it."""

    def __init__(self, partition: int, ids: Sequence[int]) -> None:
        self._partition = partition
        self._ids = ids

    def __len__(self) -> int:
        return len(self._ids)

    @overload
    def __getitem__(self, index: int) -> Place: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Place]: ...

    def __getitem__(self, index: int | slice) -> Place | Sequence[Place]:
        if isinstance(index, slice):
            return Places(self._partition, self._ids[index])
        return Place(self._partition, self._ids[index])

    def __repr__(self) -> str:
        return repr(list(self))


@dataclass(frozen=True, slots=True)
class PartitionState:
    """What a partition holds."""

    number: int
    first_id: int
    """The oldest message that is kept; one more than the newest if there is none."""
    last_id: int
    bytes: int


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """How far a group has come in a partition."""

    number: int
    position: int
    last_id: int
    owner: str
    """The member that reads it; empty if nobody does."""

    @property
    def lag(self) -> int:
        """How many messages are not done."""
        return max(self.last_id - self.position, 0)


class Topic:
    """Publishes to one topic, and looks at it. Create it with `Bus.topic`.

    The topic itself comes into being with the first message, with the properties that were given here; if it exists,
    it is as it is. Messages are stored when what `publish` returned has been awaited.
    """

    def __init__(
        self,
        link: Link,
        name: str,
        *,
        partitions: int = DEFAULT_PARTITIONS,
        retention: Retention = KEEP_ALL,
        compact: bool = False,
    ) -> None:
        place_of_topic(name)
        self.name = name
        self._link = link
        self._wanted = TopicDescription.of(partitions, retention, compact=compact)
        self._known: TopicDescription | None = None
        self._creating = asyncio.Lock()
        self._retention = retention
        self._writer = LogWriter(self._append, clock=link.clock, limits=link.limits)
        # At random, so that programs that publish one message each do not all choose the same partition.
        self._turn = random.randrange(MAX_PARTITIONS)
        self._is_turning = False
        self._appended: Counter[str] = Counter()

    # Publishing

    async def publish(
        self,
        data: Data,
        *,
        key: Key | None = None,
        partition: int | None = None,
        headers: dict[str, str] | None = None,
    ) -> Place:
        """Publish a message, and return where it is once it is stored.

        Messages with the same ``key`` are in the same partition, in the order in which they were published. Without
        ``key`` and ``partition`` those of one moment go to one partition, and those of the next to the next.

        Raises:
            InvalidArgument: there is no such partition.
            NotSerializable, PayloadTooLarge: the message cannot be stored.
        """
        value, kind = pack(data)
        topic = await self.known(partition)
        packed_key = _key(key)
        number = self._partition(topic, packed_key, partition)
        log = log_of(self.name, number)
        if packed_key is None and not headers:
            return Place(number, await self._writer.append_value(log, value, kind))
        return Place(number, await self._writer.append(log, Entry(value, kind, packed_key, headers)))

    async def publish_many(
        self, messages: Sequence[Data], *, key: Key | None = None, partition: int | None = None
    ) -> Sequence[Place]:
        """Publish messages to one partition, in their order, and return where they are once all are stored."""
        packed_key = _key(key)
        alike = pack_alike(messages) if packed_key is None else None
        entries = [Entry(*pack(data), packed_key) for data in messages] if alike is None else []
        number = self._partition(await self.known(partition), packed_key, partition)
        log = log_of(self.name, number)
        if alike is not None:
            values, kind = alike
            return Places(number, await self._writer.append_values(log, values, kind=kind))
        return Places(number, await self._writer.append_many(log, entries))

    async def append(self, batch: bytes, partition: int) -> None:
        """Append a batch that is encoded already to one partition.

        This is for who gathers messages by itself: what several callers append at the same time has no order.
        """
        self._check_partition(await self.known(partition), partition)
        await self._append(log_of(self.name, partition), batch)

    def _partition(self, topic: TopicDescription, key: bytes | None, partition: int | None) -> int:
        if partition is not None:
            self._check_partition(topic, partition)
            return partition
        if key is not None:
            return topic.partition_of(key)
        if not self._is_turning:
            self._is_turning = True
            asyncio.get_running_loop().call_soon(self._turn_over)
        return self._turn % topic.partitions

    def _check_partition(self, topic: TopicDescription, partition: int) -> None:
        if not 0 <= partition < topic.partitions:
            raise InvalidArgument(f"{self.name!r} has the partitions 0 to {topic.partitions - 1}, not {partition}.")

    def _turn_over(self) -> None:
        self._turn += 1
        self._is_turning = False

    async def _append(self, log: str, blob: bytes) -> int:
        first_id = await self._link.store.append(log, blob, retain=self._retention)
        if self._known is not None and self._known.compact:
            self._appended[log] += count_of(blob)
            if self._appended[log] >= COMPACT_AFTER:
                del self._appended[log]
                self._link.run(self._compact(log), self._link.events, f"onebus-compacts {log}")
        return first_id

    async def _compact(self, log: str) -> None:
        forgotten = await compact(self._link.store, log)
        self._link.log.debug("%d messages of %s were replaced by newer ones", forgotten, log)

    async def known(self, partition: int | None = None) -> TopicDescription:
        """Return what the topic is, as far as it is known here; if there is none, it comes into being.

        Whoever changes it tells everybody. Still, a partition that seems to be missing is looked for in the store.
        """
        self._link.enter(self)
        known = self._known
        if known is None or (partition is not None and partition >= known.partitions):
            async with self._creating:
                if self._known is None or known is self._known:
                    await self._link.topic_changes.watch(self._link.store, self.name, self._look_again)
                    self._know(await Descriptions(self._link.store).ensure(self.name, self._wanted))
                known = self._known or self._wanted
        return known

    async def _look_again(self) -> None:
        """Hear that the topic may be another one than it was."""
        if self._known is not None:
            try:
                self._know(await self.describe())
            except BusError:
                # Whoever publishes next finds out, or waits until the store is back.
                self._known = None

    def _know(self, description: TopicDescription) -> TopicDescription:
        self._known = description
        self._retention = description.retention
        return description

    async def detach(self) -> None:
        """Store what was published, because the bus disconnects."""
        try:
            await self._writer.flush()
        except BusError as error:
            await self._link.events.emit("error", error)
        self._known = None

    # Consuming

    def consume(self, group: str, **options: Any) -> TopicConsumer:
        """Return a member of a group that reads this topic, as an async iterator of batches.

        ``start`` says where a group that is new begins: at the ``"beginning"`` or at the ``"end"``. A member that shows
        no sign of life for ``lease_seconds`` loses its partitions. A batch has at most ``max_messages``. See
        `TopicConsumer` for the rest.
        """
        return TopicConsumer(self._link, [self.name], group, **options)

    async def read(self, partition: int, after: int = 0, limit: int = 1000) -> list[Message]:
        """Return messages of a partition that follow an id. They stay where they are."""
        found = await self._link.store.read(log_of(self.name, partition), after=after, limit=limit)
        start = max(after, found.first_id - 1)
        stretches = stretches_after(found.batches, start)
        return [message for stretch in stretches for message in stretch.messages()][:limit]

    # Groups

    async def seek(
        self,
        group: str,
        *,
        message_id: int | None = None,
        time: float | None = None,
        partitions: Sequence[int] | None = None,
    ) -> dict[int, int]:
        """Let a group go on with another message, in all partitions or some, and return the new positions.

        It goes on with the message ``message_id``, or with the first one that was published at ``time``, in seconds
        since 1970, or later; id 1 is the beginning, and a time in the future is the end. Members that are reading
        notice at once.

        Raises:
            InvalidArgument: neither or both of them are given, or there is no such partition.
            TopicMissing: there is no such topic.
        """
        if (message_id is None) == (time is None):
            raise InvalidArgument("Say where to go on: either message_id or time.")
        name = checked_group(self.name, group)
        topic = await Descriptions(self._link.store).get(self.name)
        numbers = range(topic.partitions) if partitions is None else partitions
        positions = {}
        for number in numbers:
            self._check_partition(topic, number)
            store, log = self._link.store, log_of(self.name, number)
            stat = await store.stat(log)
            last_id, epoch = (0, "") if stat is None else (stat.last_id, stat.epoch)
            wanted = message_id or await first_since(store, log, round((time or 0) * 1000), last_id)
            positions[number] = min(max(wanted - 1, 0), last_id)
            await _move(Cursors(self._link.store, name), number, positions[number], epoch)
        await self._link.store.signal(name.place, b"moved")
        return positions

    async def lag(self, group: str) -> list[PartitionLag]:
        """Return how far a group has come in each partition.

        Raises:
            TopicMissing: there is no such topic.
        """
        cursors = Cursors(self._link.store, checked_group(self.name, group))
        states = await self.partitions()
        found = await asyncio.gather(*(cursors.get(state.number) for state in states))
        return [
            PartitionLag(state.number, cursor.position or 0, state.last_id, cursor.owner)
            for state, cursor in zip(states, found, strict=True)
        ]

    async def members(self, group: str) -> list[str]:
        """Return the ids of all who have joined a group."""
        return await members_of(self._link.store, checked_group(self.name, group))

    # The topic

    async def create(self) -> None:
        """Create the topic.

        Raises:
            TopicExists: it exists.
        """
        self._know(await Descriptions(self._link.store).create(self.name, self._wanted))

    async def describe(self) -> TopicDescription:
        """Return what the topic is.

        Raises:
            TopicMissing: there is no such topic.
        """
        return await Descriptions(self._link.store).get(self.name)

    async def partitions(self) -> list[PartitionState]:
        """Return what each partition holds.

        Raises:
            TopicMissing: there is no such topic.
        """
        topic = await self.describe()
        stats = await asyncio.gather(*(self._link.store.stat(log_of(self.name, n)) for n in range(topic.partitions)))
        return [
            PartitionState(number, 1, 0, 0)
            if stat is None
            else PartitionState(number, stat.first_id, stat.last_id, stat.bytes)
            for number, stat in enumerate(stats)
        ]

    async def add_partitions(self, count: int, *, for_keys: bool = False) -> TopicDescription:
        """Add partitions, which members of groups take over at once.

        Messages with keys stay in the partitions that their keys have always had. With ``for_keys`` they are spread
        over the new ones too: most keys move then, and a key's order holds from that moment on only.

        Raises:
            TopicMissing: there is no such topic.
            InvalidArgument: there would be too many, or fewer than now.
        """
        if count < 1:
            raise InvalidArgument(f"Add at least one partition, and not {count}.")
        descriptions = Descriptions(self._link.store)
        total = (await descriptions.get(self.name)).partitions + count
        changes = {"partitions": total, "key_partitions": total} if for_keys else {"partitions": total}
        description = self._know(await descriptions.change(self.name, **changes))
        await self._tell_changed(b"grown")
        return description

    async def compact(self) -> int:
        """Forget messages that a newer one with the same key has replaced; returns how many there are.

        They go when their whole batch was replaced. A topic with ``compact=True`` does this by itself from time to
        time, while messages are published.

        Raises:
            TopicMissing: there is no such topic.
        """
        topic = await self.describe()
        return sum([await compact(self._link.store, log_of(self.name, number)) for number in range(topic.partitions)])

    async def delete(self) -> None:
        """Delete the topic and all its messages.

        Raises:
            TopicMissing: there is no such topic.
        """
        self._known = None
        await Descriptions(self._link.store).delete(self.name)
        await self._tell_changed(b"deleted")

    async def _tell_changed(self, how: bytes) -> None:
        """Tell those who read the topic, and those who publish to it."""
        await self._link.store.signal(place_of_topic(self.name), how)
        await self._link.topic_changes.tell(self._link.store, self.name)


async def _move(cursors: Cursors, partition: int, position: int, epoch: str) -> None:
    while True:
        try:
            await cursors.move(partition, await cursors.get(partition), position, epoch)
        except VersionConflict:
            continue
        return


def _key(key: Key | None) -> bytes | None:
    return key.encode() if isinstance(key, str) else key
