"""What a consumer of a topic gets: some messages of one partition, in order."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from onebus.message import Message
from onebus.objects.topics.stretch import Stretch


class Reading(Protocol):
    """Where a batch comes from."""

    topic: str
    number: int

    @property
    def fence(self) -> int: ...

    def deliver(self, batch: "TopicBatch") -> bool: ...

    def finished(self, batch: "TopicBatch") -> None: ...

    def abandoned(self, batch: "TopicBatch") -> None: ...

    async def commit(self, batch: "TopicBatch") -> None: ...


class TopicBatch:
    """One message or more of one partition, in order."""

    __slots__ = ("_messages", "_reading", "epoch", "is_delivered", "is_finished", "stretches")

    def __init__(self, reading: Reading, stretches: Sequence[Stretch], epoch: str) -> None:
        self._reading = reading
        self._messages: list[Message] | None = None
        self.stretches = stretches
        """The same messages as they are stored, for whoever wants many of them as they are."""
        self.epoch = epoch
        self.is_delivered = False
        """Whether somebody works on it, or has done so."""
        self.is_finished = False

    @property
    def messages(self) -> Sequence[Message]:
        if self._messages is None:
            self._messages = [message for stretch in self.stretches for message in stretch.messages()]
        return self._messages

    @property
    def topic(self) -> str:
        return self._reading.topic

    @property
    def partition(self) -> int:
        return self._reading.number

    @property
    def fence(self) -> int:
        """Grows whenever the partition gets another owner: what is written elsewhere can refuse those that are late."""
        return self._reading.fence

    @property
    def first_id(self) -> int:
        """The id of its first message."""
        return self.stretches[0].ids[0]

    @property
    def last_id(self) -> int:
        """The id of its last message."""
        return self.stretches[-1].ids[-1]

    def __iter__(self) -> Iterator[Message]:
        return iter(self.messages)

    def __len__(self) -> int:
        return sum(map(len, self.stretches))

    def deliver(self) -> bool:
        """Return whether it may be worked on: its partition may have moved to another member meanwhile."""
        return self._reading.deliver(self)

    def abandon(self) -> None:
        """Leave it undone, to be delivered again."""
        self._reading.abandoned(self)

    def finish(self) -> None:
        """Declare it done; the position of its group moves soon, once all before it is done too."""
        self._reading.finished(self)

    async def commit(self) -> None:
        """Declare it and all before it in its partition done, and return when the position of its group is stored.

        Raises:
            PartitionLost: another member has the partition by now.
        """
        await self._reading.commit(self)

    def __repr__(self) -> str:
        return f"<TopicBatch {self.topic}:{self.partition}, {self.first_id} to {self.last_id}>"
