"""Topics for blocking code."""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any, Self

from onebus.message import Message as AsyncMessage
from onebus.objects.topics.batch import TopicBatch as AsyncBatch
from onebus.objects.topics.consumer import TopicConsumer as AsyncConsumer
from onebus.objects.topics.description import TopicDescription
from onebus.objects.topics.topic import Key, PartitionLag, PartitionState, Place
from onebus.objects.topics.topic import Topic as AsyncTopic
from onebus.payload import Data
from onebus.sync.events import Emitter, Relay, checked_plain
from onebus.sync.message import Message
from onebus.sync.portal import Portal


class TopicBatch:
    """One message or more of one partition, in order; see `onebus.objects.topics.batch.TopicBatch`."""

    def __init__(self, portal: Portal, batch: AsyncBatch) -> None:
        self._portal = portal
        self._batch = batch

    @property
    def messages(self) -> Sequence[AsyncMessage]:
        return self._batch.messages

    @property
    def topic(self) -> str:
        return self._batch.topic

    @property
    def partition(self) -> int:
        return self._batch.partition

    @property
    def fence(self) -> int:
        """Grows whenever the partition gets another owner."""
        return self._batch.fence

    @property
    def first_id(self) -> int:
        return self._batch.first_id

    @property
    def last_id(self) -> int:
        return self._batch.last_id

    def __iter__(self) -> Iterator[AsyncMessage]:
        return iter(self._batch)

    def __len__(self) -> int:
        return len(self._batch)

    def finish(self) -> None:
        """Declare it done; it waits for nothing."""
        self._portal.post(self._batch.finish)

    def commit(self) -> None:
        """Declare it and all before it in its partition done, and return when the position of its group is stored.

        Raises:
            PartitionLost: another member has the partition by now.
        """
        self._portal.call(self._batch.commit())

    def __repr__(self) -> str:
        return repr(self._batch)


class TopicConsumer(Emitter):
    """A member of a group, as an iterator of batches; see `onebus.objects.topics.consumer.TopicConsumer`.

    A batch is done when the loop asks for the next one, unless ``auto_commit`` is off. Use it in ``with`` to leave the
    group at once when the loop ends.
    """

    def __init__(self, portal: Portal, consumer: AsyncConsumer) -> None:
        super().__init__(portal, consumer.events)
        self._consumer = consumer

    @property
    def assignment(self) -> dict[str, list[int]]:
        """The partitions of each topic that this member has at the moment."""
        return self._consumer.assignment

    def __enter__(self) -> Self:
        self.join()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def join(self) -> None:
        """Join the group; partitions follow. Joining twice does nothing."""
        self._portal.call(self._consumer.join())

    def stop(self) -> None:
        """End the loop when its body comes to its end. May be called in any thread, also in the body."""
        self._portal.post(self._consumer.stop)

    def close(self) -> None:
        """Leave the group: what is done is committed, and the partitions go to the others. May be called twice."""
        self._portal.finish(self._consumer.close())

    def __iter__(self) -> Iterator[TopicBatch]:
        batches = aiter(self._consumer)
        try:
            while (batch := self._portal.call(_next(batches))) is not None:
                yield TopicBatch(self._portal, batch)
        finally:
            self._portal.finish(batches.aclose())

    def process(self, handler: Callable[[Message], Any], *, key_concurrency: int = 1) -> None:
        """Call a handler for each message, in other threads, until the consumer is stopped, so many keys at once."""
        relay = Relay(self._portal, checked_plain(handler))
        self._portal.call(self._consumer.process(relay, key_concurrency=key_concurrency))


class Topic:
    """Publishes to one topic, and looks at it; see `onebus.objects.topics.topic.Topic`. Create it with `Bus.topic`."""

    def __init__(self, portal: Portal, topic: AsyncTopic) -> None:
        self._portal = portal
        self._topic = topic

    @property
    def name(self) -> str:
        return self._topic.name

    def publish(self, data: Data, **options: Any) -> Place:
        """Publish a message, and return where it is once it is stored. Takes what the async one takes."""
        return self._portal.call(self._topic.publish(data, **options))

    def publish_many(
        self, messages: Sequence[Data], *, key: Key | None = None, partition: int | None = None
    ) -> Sequence[Place]:
        """Publish messages to one partition, in their order, and return where they are once all are stored."""
        return self._portal.call(self._topic.publish_many(messages, key=key, partition=partition))

    def consume(self, group: str, **options: Any) -> TopicConsumer:
        """Return a member of a group that reads this topic, as an iterator of batches."""
        return TopicConsumer(self._portal, self._topic.consume(group, **options))

    def read(self, partition: int, after: int = 0, limit: int = 1000) -> list[AsyncMessage]:
        """Return messages of a partition that follow an id. They stay where they are."""
        return self._portal.call(self._topic.read(partition, after, limit))

    def seek(self, group: str, **where: Any) -> dict[int, int]:
        """Let a group go on with another message, and return the new positions. Takes what the async one takes."""
        return self._portal.call(self._topic.seek(group, **where))

    def lag(self, group: str) -> list[PartitionLag]:
        """Return how far a group has come in each partition."""
        return self._portal.call(self._topic.lag(group))

    def members(self, group: str) -> list[str]:
        """Return the ids of all who have joined a group."""
        return self._portal.call(self._topic.members(group))

    def create(self) -> None:
        """Create the topic."""
        self._portal.call(self._topic.create())

    def describe(self) -> TopicDescription:
        """Return what the topic is."""
        return self._portal.call(self._topic.describe())

    def partitions(self) -> list[PartitionState]:
        """Return what each partition holds."""
        return self._portal.call(self._topic.partitions())

    def add_partitions(self, count: int, *, for_keys: bool = False) -> TopicDescription:
        """Add partitions, which members of groups take over at once."""
        return self._portal.call(self._topic.add_partitions(count, for_keys=for_keys))

    def compact(self) -> int:
        """Forget messages that a newer one with the same key has replaced; returns how many there are."""
        return self._portal.call(self._topic.compact())

    def delete(self) -> None:
        """Delete the topic and all its messages."""
        self._portal.call(self._topic.delete())


async def _next(batches: AsyncIterator[AsyncBatch]) -> AsyncBatch | None:
    return await anext(batches, None)
