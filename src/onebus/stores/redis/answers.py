"""From what onebus asks to what the scripts take, and from what they return to what onebus expects."""

from collections.abc import Sequence
from operator import attrgetter
from typing import Any, TypeAlias

from onebus.log.claims import Lease
from onebus.log.retention import KEEP_ALL, Retention
from onebus.log.stored import StoredBatch, Twin
from onebus.stores.base import Claim, LogStat, Lost, Span
from onebus.stores.news import PackedNews
from onebus.stores.switchboard import Claimed

Entry: TypeAlias = tuple[bytes, Sequence[bytes]]
"""A batch as XRANGE returns it: its id, and names and values of its fields in the order of the key layout."""

NOTHING = b""
"""Stands for None in the arguments of a script."""

_NO_LIMITS = (NOTHING, NOTHING, NOTHING)


def limits_of(retain: Retention) -> tuple[bytes | int | float, ...]:
    if retain is KEEP_ALL:
        return _NO_LIMITS
    max_age_ms = None if retain.max_age_seconds is None else retain.max_age_seconds * 1000
    return tuple(NOTHING if limit is None else limit for limit in (retain.max_count, retain.max_bytes, max_age_ms))


def sweep_of(leases: Sequence[Lease]) -> list[int]:
    """Return leases as first, last, fence, …: sorted, as the scripts need them, and neighbours as one."""
    numbers: list[int] = []
    for lease in sorted(leases, key=attrgetter("first")):
        if numbers and numbers[-2] == lease.first - 1 and numbers[-1] == lease.fence:
            numbers[-2] = lease.last
        else:
            numbers += lease.first, lease.last, lease.fence
    return numbers


def lost_of(numbers: Sequence[int]) -> Lost:
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def batch_of(entry: Entry, apart: bytes | None = None) -> StoredBatch:
    """Return the batch of an entry; `apart` is the batch itself where it lies elsewhere."""
    id_, fields = entry
    last_id = int(id_.partition(b"-")[0])
    count, appended_ms, blob = int(fields[1]), int(fields[5]), fields[7] if apart is None else apart
    if len(fields) == 8:
        return StoredBatch(last_id, count, blob, appended_ms)
    return StoredBatch(last_id, count, blob, appended_ms, Twin(fields[9].decode(), int(fields[11])))


def apart_of(entry: Entry) -> bytes | None:
    """Return the key at which the batch of an entry lies; None where it is in the entry itself."""
    fields = entry[1]
    return None if fields[6] == b"b" else fields[7].partition(b" ")[2]


def claim_of(answer: Sequence[Any]) -> Claim:
    fence, leases, entries, lost, retry_after_ms = answer
    return Claim(
        [
            Lease(first, last, fence, attempts)
            for first, last, attempts in zip(leases[::3], leases[1::3], leases[2::3], strict=True)
        ],
        [batch_of(entry) for entry in entries],
        lost_of(lost),
        None if retry_after_ms < 0 else retry_after_ms / 1000,
    )


def claimed_of(payload: bytes) -> Claimed:
    """Read what the append script hands over: ``fence first last``, a line break, and the news of the batch."""
    head, _, packed = payload.partition(b"\n")
    fence, first, last = map(int, head.split())
    _, batch = PackedNews(packed).read()
    return Claimed(Lease(first, last, fence), batch)


def spans_of(numbers: Sequence[int]) -> list[Span]:
    return [
        Span(first, last, bool(is_held))
        for first, last, is_held in zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True)
    ]


def stat_of(answer: Sequence[Any]) -> LogStat:
    epoch, first, last, head, claimable, held, size, ttl_ms = answer
    return LogStat(
        epoch=epoch.decode(),
        first_id=first,
        last_id=last,
        head=head,
        claimable=claimable,
        held=held,
        bytes=size,
        ttl_seconds=ttl_ms / 1000,
    )
