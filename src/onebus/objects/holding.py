"""Messages that a consumer holds: which of them were handed over, and which are done.

A claim brings ranges of ids, so a holding is one range with its lease. Ids leave it when they are acknowledged,
released or rejected; what is left when the consumer stops goes back to the queue.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

from onebus.errors import LeaseLost
from onebus.log.claims import Lease

if TYPE_CHECKING:
    from onebus.message import Message


class Holder(Protocol):
    """The consumer to which a holding belongs."""

    log: str

    @property
    def is_over(self) -> bool: ...

    def acked(self, holding: "Holding", message_id: int) -> None: ...

    async def release(self, leases: list[Lease], delay: float) -> None: ...

    async def extend(self, leases: list[Lease], seconds: float | None) -> None: ...

    async def reject(self, message: "Message", lease: Lease, reason: str) -> None: ...


class Holding:
    """One leased range of ids, in the hands of one consumer."""

    __slots__ = ("_acked", "_holder", "_open", "handed", "lease")

    def __init__(self, lease: Lease, holder: Holder) -> None:
        self.lease = lease
        self.handed = lease.first - 1
        """The last id that was handed over."""
        self._holder = holder
        self._open = [(lease.first, lease.last)]
        self._acked: list[int] = []

    @property
    def is_open(self) -> bool:
        """Whether any id is still held."""
        return bool(self._open)

    # What the messages ask for

    @property
    def is_over(self) -> bool:
        return self._holder.is_over

    def ack(self, message_id: int) -> None:
        if not self._acked:
            self._holder.acked(self, message_id)
        self._acked.append(message_id)

    async def release(self, message_id: int, delay: float) -> None:
        await self._holder.release(self._take_one(message_id), delay)

    async def extend(self, message_id: int, seconds: float | None) -> None:
        await self._holder.extend([self._one(message_id)], seconds)

    async def reject(self, message: "Message", reason: str) -> None:
        await self._holder.reject(message, self._one(message.id), reason)
        self.take([message.id])

    # What the consumer asks for

    def ack_until(self, message_id: int) -> None:
        """Acknowledge every id that was handed over, up to `message_id`."""
        last = min(message_id, self.handed)
        if last >= self.lease.first:
            for first_open, last_open in self._open:
                for one in range(first_open, min(last_open, last) + 1):
                    self.ack(one)

    def take_acked(self) -> list[Lease]:
        """Return what is to be settled, and hold it no more."""
        acked, self._acked = self._acked, []
        return self.take(acked)

    def take(self, ids: list[int]) -> list[Lease]:
        """Return the leases of those ids that are held, and hold them no more."""
        taken = list(_common(self._open, _ranges(ids)))
        self._open = list(_without(self._open, taken))
        return [self.lease.part(first, last) for first, last in taken]

    def take_handed(self) -> list[Lease]:
        """Return the leases of all that was handed over, and hold it no more."""
        return self._take_range(self.lease.first, self.handed)

    def take_rest(self) -> list[Lease]:
        """Return the leases of all that was not handed over, and hold it no more."""
        return self._take_range(self.handed + 1, self.lease.last)

    def lose(self, first: int, last: int) -> None:
        """Hold ids no more, because somebody else does."""
        self._take_range(first, last)

    def leases(self, *, with_handed: bool) -> list[Lease]:
        """Return the leases of what is held, with or without what was handed over."""
        wanted = [(self.lease.first if with_handed else self.handed + 1, self.lease.last)]
        return [self.lease.part(first, last) for first, last in _common(self._open, wanted)]

    def _take_range(self, first: int, last: int) -> list[Lease]:
        taken = list(_common(self._open, [(first, last)]))
        self._open = list(_without(self._open, taken))
        return [self.lease.part(*one) for one in taken]

    def _take_one(self, message_id: int) -> list[Lease]:
        lease = self._one(message_id)
        self.take([message_id])
        return [lease]

    def _one(self, message_id: int) -> Lease:
        if not any(first <= message_id <= last for first, last in self._open):
            raise LeaseLost(self._holder.log, [(message_id, message_id)])
        return self.lease.part(message_id, message_id)


def _ranges(ids: list[int]) -> Iterator[tuple[int, int]]:
    """Return ids as ranges, in order."""
    ids.sort()
    start = end = None
    for one in ids:
        if start is None or end is None:
            start = end = one
        elif one <= end + 1:
            end = max(end, one)
        else:
            yield start, end
            start = end = one
    if start is not None and end is not None:
        yield start, end


def _common(ranges: Iterable[tuple[int, int]], others: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Return what two ordered lists of disjoint ranges share."""
    remaining = iter(others)
    other = next(remaining, None)
    for first, last in ranges:
        while other is not None and other[0] <= last:
            if other[1] >= first:
                yield max(first, other[0]), min(last, other[1])
            if other[1] > last:
                break
            other = next(remaining, None)


def _without(ranges: Iterable[tuple[int, int]], gone: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Return what is left of ordered ranges when parts of them are gone."""
    for first, last in ranges:
        start = first
        for gone_first, gone_last in gone:
            if gone_first > last or gone_last < start:
                continue
            if gone_first > start:
                yield start, gone_first - 1
            start = gone_last + 1
        if start <= last:
            yield start, last
