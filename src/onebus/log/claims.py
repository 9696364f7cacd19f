"""The rules of claims: who holds which ids of a log, until when.

Ids are dense, so a claim is arithmetic on ranges of ids and never touches the messages. ``head`` is
the first id that nobody has taken. Below it, every id is either *done*, or covered by exactly one
`Hold`: leased by somebody until a deadline, waiting out a delay, or free to be taken again. Free
ids go before ``head``, in the order of their ids: that is "back to the front of the queue".

A lease whose deadline has passed is freed by the next claim. Until somebody takes the ids again,
its holder may still settle, release or extend them: the fence has not changed, so nothing has
happened that they could spoil. Who does not know the fence can name `ANY_FENCE` instead, and then has
power over what is leased at that moment, whoever holds it.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from msgspec import Struct
from msgspec.structs import replace

FREE = 0
"""The `due_ms` of a hold that may be claimed now."""

NO_FENCE = 0
"""The fence of ids that nobody holds: claimed without a lease, or released."""

ANY_FENCE = -1
"""The fence of a lease that stands for whoever holds the ids now; it has no power over a lease that has ended."""


class Lease(Struct, frozen=True, gc=False):
    """A range of ids that a consumer holds, and the fence that proves it."""

    first: int
    last: int
    fence: int
    attempts: int = 1

    @property
    def count(self) -> int:
        return self.last - self.first + 1

    def part(self, first: int, last: int) -> "Lease":
        """Return the same lease on fewer ids."""
        if not self.first <= first <= last <= self.last:
            raise ValueError(f"{first}-{last} is not within {self.first}-{self.last}")
        return Lease(first, last, self.fence, self.attempts)


def ranges_of(leases: Iterable[Lease]) -> list[tuple[int, int]]:
    """Return the ids that leases name: all of them are lost when their log is gone."""
    return [(lease.first, lease.last) for lease in leases]


class Hold(Struct, frozen=True, gc=False):
    """A range of ids below ``head`` that is not done yet, as a store keeps it."""

    first: int
    last: int
    fence: int
    due_ms: int
    attempts: int
    redeliver: bool = True
    owner: str = ""

    @property
    def count(self) -> int:
        return self.last - self.first + 1

    def lease(self) -> Lease:
        return Lease(self.first, self.last, self.fence, self.attempts)

    def obeys(self, fence: int, now_ms: int) -> bool:
        """Return whether a fence gives power over this hold."""
        if fence == ANY_FENCE:
            return self.fence != NO_FENCE and self.due_ms > now_ms
        return self.fence == fence != NO_FENCE

    def put_back(self, due_ms: int, *, fence: int | None, attempts: int) -> "Hold":
        """Return the hold with another due time; with a fence it is released, and then always redelivered."""
        return replace(
            self,
            due_ms=due_ms,
            fence=self.fence if fence is None else fence,
            attempts=self.attempts + attempts,
            redeliver=self.redeliver or fence is not None,
        )


@dataclass(frozen=True, slots=True)
class Carving:
    """What cutting leases out of holds leaves behind."""

    touched: list[Hold]
    """The holds that were cut into; a store removes these and puts back what is below."""
    taken: list[Hold]
    """The pieces that the leases cover."""
    rest: list[Hold]
    """The pieces of touched holds that no lease covers: they stay as they were."""
    lost: list[tuple[int, int]]
    """The ranges that the leases name but do not hold."""


def carve(holds: Sequence[Hold], leases: Iterable[Lease], *, now_ms: int) -> Carving:
    """Cut `leases` out of `holds`, which must be sorted and contain every hold that they overlap."""
    carving = Carving([], [], [], [])
    pieces = {hold.first: [hold] for hold in holds}
    firsts = [hold.first for hold in holds]
    touched: dict[int, Hold] = {}
    for lease in leases:
        at = lease.first
        index = max(bisect_right(firsts, lease.first) - 1, 0)
        while index < len(firsts) and firsts[index] <= lease.last:
            hold = holds[index]
            index += 1
            if not hold.obeys(lease.fence, now_ms) or hold.last < lease.first:
                continue
            left: list[Hold] = []
            for piece in pieces[hold.first]:
                first, last = max(piece.first, lease.first), min(piece.last, lease.last)
                if first > last:
                    left.append(piece)
                    continue
                touched[hold.first] = hold
                carving.taken.append(replace(piece, first=first, last=last))
                if piece.first < first:
                    left.append(replace(piece, last=first - 1))
                if last < piece.last:
                    left.append(replace(piece, first=last + 1))
                if at < first:
                    carving.lost.append((at, first - 1))
                at = last + 1
            pieces[hold.first] = left
        if at <= lease.last:
            carving.lost.append((at, lease.last))
    for first in sorted(touched):
        carving.touched.append(touched[first])
        carving.rest.extend(pieces[first])
    return carving


class HoldTable:
    """The holds of one log in memory: sorted, disjoint, with the due ones found without a search."""

    def __init__(self) -> None:
        self._holds: dict[int, Hold] = {}
        self._firsts: list[int] = []
        self._free: list[int] = []
        self._due: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._holds)

    def __iter__(self) -> Iterator[Hold]:
        return (self._holds[first] for first in self._firsts)

    def add(self, hold: Hold) -> None:
        self._holds[hold.first] = hold
        insort(self._firsts, hold.first)
        if hold.due_ms == FREE:
            insort(self._free, hold.first)
        else:
            if len(self._due) > 2 * len(self._holds) + 100:
                self._due = sorted(entry for entry in self._due if not self._is_stale(entry))
            heappush(self._due, (hold.due_ms, hold.first))

    def remove(self, hold: Hold) -> None:
        del self._holds[hold.first]
        del self._firsts[bisect_left(self._firsts, hold.first)]
        if hold.due_ms == FREE:
            del self._free[bisect_left(self._free, hold.first)]

    def carve(self, leases: Sequence[Lease], *, now_ms: int) -> Carving:
        """Cut `leases` out of the table: what they cover is gone from it, the rest stays."""
        wanted: dict[int, Hold] = {}
        for lease in leases:
            for hold in self.overlapping(lease.first, lease.last):
                wanted[hold.first] = hold
        carving = carve([wanted[first] for first in sorted(wanted)], leases, now_ms=now_ms)
        for hold in carving.touched:
            self.remove(hold)
        for hold in carving.rest:
            self.add(hold)
        return carving

    def overlapping(self, first: int, last: int) -> list[Hold]:
        """Return the holds that share ids with ``first..last``, in order."""
        start = max(bisect_right(self._firsts, first) - 1, 0)
        stop = bisect_right(self._firsts, last)
        holds = (self._holds[at] for at in self._firsts[start:stop])
        return [hold for hold in holds if hold.last >= first]

    def free_due(self, now_ms: int) -> list[Hold]:
        """Free what is due at `now_ms`; return the holds that end here, because they are not redelivered."""
        ended: list[Hold] = []
        for hold in self._pop_due(now_ms):
            self.remove(hold)
            if hold.redeliver:
                self.add(replace(hold, due_ms=FREE))
            else:
                ended.append(hold)
        return ended

    def take_free(self, limit: int) -> list[Hold]:
        """Remove and return free holds of at most `limit` ids in all, lowest ids first."""
        taken: list[Hold] = []
        while limit > 0 and self._free:
            hold = self._holds[self._free[0]]
            self.remove(hold)
            if hold.count > limit:
                self.add(replace(hold, first=hold.first + limit))
                hold = replace(hold, last=hold.first + limit - 1)
            taken.append(hold)
            limit -= hold.count
        return taken

    def next_due_ms(self) -> int | None:
        """Return when the next hold becomes free, or None if none ever does by itself."""
        while self._due and self._is_stale(self._due[0]):
            heappop(self._due)
        return self._due[0][0] if self._due else None

    def _pop_due(self, now_ms: int) -> Iterator[Hold]:
        while self._due and self._due[0][0] <= now_ms:
            entry = heappop(self._due)
            if not self._is_stale(entry):
                yield self._holds[entry[1]]

    def _is_stale(self, entry: tuple[int, int]) -> bool:
        # Holds leave the table without a search through the heap; what they left there is skipped here.
        due_ms, first = entry
        hold = self._holds.get(first)
        return hold is None or hold.due_ms != due_ms
