"""Keeping the last message of each key: what was replaced by a newer one goes, batch by batch.

A topic is read without claims, so claims are free to mark what may go: everything is claimed, and what was replaced is
settled. The store deletes a batch when all its messages are settled. Whoever reads may still meet a message that was
replaced, in a batch with others that were not.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final

from onebus.errors import LeaseLost, VersionConflict
from onebus.log.claims import ANY_FENCE, Lease
from onebus.objects.unpacking import entries_by_id
from onebus.stores.base import Store

CLAIM_SECONDS: Final = 24 * 3600.0
"""For how long what was kept is marked; it is marked again after that."""
TURN_SECONDS: Final = 60.0
"""For how long nobody else compacts the same partition, if whoever does so dies."""
CLAIMED_AT_ONCE: Final = 10_000
SETTLED_AT_ONCE: Final = 1000


async def compact(store: Store, log: str) -> int:
    """Forget what was replaced, and return how many messages that is; none if somebody else is about to do so."""
    turn = f"{log}|compaction"
    try:
        version = await store.put(turn, {"turn": b"taken"}, expected=0, ttl_seconds=TURN_SECONDS)
    except VersionConflict:
        return 0
    try:
        await _claim_all(store, log)
        replaced = await _replaced(store, log)
        leases = list(_leases(replaced))
        for start in range(0, len(leases), SETTLED_AT_ONCE):
            try:
                await store.settle(log, leases[start : start + SETTLED_AT_ONCE])
            except LeaseLost:
                # Some were settled before, and stay in their batch because of others.
                continue
        return len(replaced)
    finally:
        # If it took too long, somebody else has taken a turn meanwhile.
        with suppress(VersionConflict):
            await store.delete(turn, expected=version)


async def _claim_all(store: Store, log: str) -> None:
    while (await store.claim(log, limit=CLAIMED_AT_ONCE, lease_seconds=CLAIM_SECONDS, owner="compaction")).leases:
        pass


async def _replaced(store: Store, log: str) -> list[int]:
    """Return the messages that have a newer one with the same key, in order."""
    newest: dict[bytes, int] = {}
    replaced: list[int] = []
    after = 0
    while (found := await store.read(log, after=after, limit=CLAIMED_AT_ONCE)).batches:
        for stored in found.batches:
            for id_, entry in entries_by_id(stored):
                if entry.key is not None and id_ > after:
                    if entry.key in newest:
                        replaced.append(newest[entry.key])
                    newest[entry.key] = id_
            after = stored.last_id
    return sorted(replaced)


def _leases(ids: Iterable[int]) -> Iterator[Lease]:
    """Return ids as leases of whoever holds them, neighbours as one."""
    first = last = 0
    for id_ in ids:
        if first and id_ == last + 1:
            last = id_
            continue
        if first:
            yield Lease(first, last, ANY_FENCE)
        first = last = id_
    if first:
        yield Lease(first, last, ANY_FENCE)
