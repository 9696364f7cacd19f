"""Messages of a log that follow each other, in the batch in which they are stored until somebody wants them."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat

from msgspec import Struct

from onebus.log.batch import Batch, decode
from onebus.log.stored import StoredBatch
from onebus.message import Message
from onebus.objects.unpacking import message_of


class Stretch(Struct, frozen=True):
    """Some messages of one stored batch."""

    batch: Batch
    first_id: int
    """Of the batch, and not of what is wanted of it."""
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def ids(self) -> range:
        return range(self.first_id + self.start, self.first_id + self.stop)

    def payloads(self) -> list[bytes]:
        """Return just the values."""
        return self.batch.payloads(self.start, self.stop)

    def messages(self) -> list[Message]:
        if self.batch.is_plain:
            kind, time_ms = self.batch.kind, self.batch.time_ms
            return list(map(Message, self.ids, self.payloads(), repeat(kind), repeat(time_ms)))
        entries = self.batch.entries()[self.start : self.stop]
        return [message_of(*one, 1, None) for one in zip(self.ids, entries, strict=True)]


def stretches_after(batches: Iterable[StoredBatch], after: int) -> list[Stretch]:
    """Return what follows an id."""
    return [
        Stretch(
            decode(stored.blob),
            stored.first_id,
            start=max(after - stored.first_id + 1, 0),
            stop=stored.last_id - stored.first_id + 1,
        )
        for stored in batches
        if stored.last_id > after
    ]


def cut(stretches: Iterable[Stretch], length: int) -> Iterator[Sequence[Stretch]]:
    """Return the same messages in lists that have `length` of them together, but for the last one."""
    gathered: list[Stretch] = []
    room = length
    for whole in stretches:
        rest = whole
        while len(rest) > room:
            if room:
                middle = rest.start + room
                gathered.append(Stretch(rest.batch, rest.first_id, rest.start, middle))
                rest = Stretch(rest.batch, rest.first_id, middle, rest.stop)
            yield gathered
            gathered, room = [], length
        if rest:
            gathered.append(rest)
            room -= len(rest)
    if gathered:
        yield gathered
