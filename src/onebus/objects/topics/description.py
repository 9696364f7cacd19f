"""What a topic is: kept in the store, so that everybody who uses it agrees."""

import zlib

import msgspec
from msgspec import Struct

from onebus.errors import InvalidArgument, TopicExists, TopicMissing, VersionConflict
from onebus.log.names import place_of
from onebus.log.retention import KEEP_ALL, Retention
from onebus.objects.topics.names import KIND, log_of, place_of_topic
from onebus.stores.base import Store

DEFAULT_PARTITIONS = 10
MAX_PARTITIONS = 10_000
_FIELD = "topic"


class TopicDescription(Struct, frozen=True):
    """The properties of a topic."""

    partitions: int = DEFAULT_PARTITIONS
    key_partitions: int = DEFAULT_PARTITIONS
    """Over how many partitions keys are spread: those that are added later get no keys, unless that is asked for."""
    max_count: int | None = None
    max_bytes: int | None = None
    max_age_seconds: float | None = None
    compact: bool = False
    """Whether only the last message of each key has to stay."""

    @classmethod
    def of(cls, partitions: int, retention: Retention, *, compact: bool) -> "TopicDescription":
        """Return the description of a new topic.

        Raises:
            InvalidArgument: a topic cannot have so many partitions.
        """
        checked_partitions(partitions)
        limits = retention.max_count, retention.max_bytes, retention.max_age_seconds
        return cls(partitions, partitions, *limits, compact)

    @property
    def retention(self) -> Retention:
        """What each partition keeps."""
        retention = Retention(self.max_count, self.max_bytes, self.max_age_seconds)
        # Stores are fastest where they see at a glance that nothing is to be trimmed.
        return KEEP_ALL if retention == KEEP_ALL else retention

    def partition_of(self, key: bytes) -> int:
        """Return the partition in which all messages with a key are."""
        return zlib.crc32(key) % self.key_partitions


class Descriptions:
    """The descriptions of topics in a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def get(self, topic: str) -> TopicDescription:
        """Return what a topic is.

        Raises:
            TopicMissing: there is no such topic.
        """
        return (await self._read(topic))[0]

    async def ensure(self, topic: str, wanted: TopicDescription) -> TopicDescription:
        """Create a topic unless it exists, and return what it is."""
        try:
            return await self.create(topic, wanted)
        except TopicExists:
            return await self.get(topic)

    async def create(self, topic: str, wanted: TopicDescription) -> TopicDescription:
        """Create a topic.

        Raises:
            TopicExists: it exists.
        """
        try:
            await self._store.put(place_of_topic(topic), {_FIELD: msgspec.json.encode(wanted)}, expected=0)
        except VersionConflict:
            raise TopicExists(f"The topic {topic!r} exists already.") from None
        # Topics are listed by their logs.
        await self._store.touch(log_of(topic, 0), create=True)
        return wanted

    async def names(self, prefix: str = "") -> list[str]:
        """Return the names of all topics that start with `prefix`, sorted."""
        start = f"{KIND}:{prefix}"
        logs = await self._store.list_logs(start)
        return sorted({place_of(log).removeprefix(f"{KIND}:") for log in logs})

    async def change(self, topic: str, **changes: object) -> TopicDescription:
        """Change some properties of a topic, and return what it is then.

        Raises:
            TopicMissing: there is no such topic.
            InvalidArgument: it cannot be changed like this.
        """
        while True:
            old, version = await self._read(topic)
            new = msgspec.structs.replace(old, **changes)
            if new.partitions < old.partitions:
                raise InvalidArgument(f"{topic!r} has {old.partitions} partitions, and none can be taken away.")
            checked_partitions(new.partitions)
            try:
                await self._store.put(place_of_topic(topic), {_FIELD: msgspec.json.encode(new)}, expected=version)
            except VersionConflict:
                continue
            return new

    async def delete(self, topic: str) -> None:
        """Delete a topic with all its messages. What groups have read of it is forgotten with its partitions.

        Raises:
            TopicMissing: there is no such topic.
        """
        description = await self.get(topic)
        await self._store.delete(place_of_topic(topic))
        for partition in range(description.partitions):
            await self._store.drop(log_of(topic, partition))

    async def _read(self, topic: str) -> tuple[TopicDescription, int]:
        record = await self._store.get(place_of_topic(topic))
        if record is None or _FIELD not in record.fields:
            raise TopicMissing(f"There is no topic {topic!r}. Publish to it, or create it first.")
        return msgspec.json.decode(record.fields[_FIELD], type=TopicDescription), record.version


def checked_partitions(partitions: int) -> int:
    if not 0 < partitions <= MAX_PARTITIONS:
        raise InvalidArgument(f"A topic has from 1 to {MAX_PARTITIONS} partitions, and not {partitions}.")
    return partitions
