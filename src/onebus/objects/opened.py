"""The messages of what was claimed, when batches are claimed piece by piece.

A claim brings whole batches along, however few of their messages it took. A large batch that is handed out one message
at a time is therefore opened once, and remembered for the next claim.
"""

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

from onebus.log.batch import Entry, decode
from onebus.log.claims import Lease
from onebus.log.stored import StoredBatch
from onebus.message import Message
from onebus.objects.unpacking import message_of
from onebus.stores.base import Claim

SMALL_BYTES: Final = 2048
"""Opening a batch of this size costs as much as remembering it."""
MAX_REMEMBERED: Final = 4


class OpenedBatches:
    """Opens batches, and remembers the large ones that it opened last."""

    def __init__(self) -> None:
        self._opened: OrderedDict[int, tuple[bytes, list[Entry]]] = OrderedDict()

    def messages(self, claim: Claim) -> Iterator[tuple[Lease, list[Message]]]:
        """Return what was claimed, lease by lease.

        Raises:
            CorruptBatch: a batch cannot be read.
        """
        batches = sorted(claim.batches, key=lambda stored: stored.last_id)
        last_ids = [stored.last_id for stored in batches]
        for lease in claim.leases:
            messages: list[Message] = []
            at = bisect_left(last_ids, lease.first)
            while at < len(batches) and batches[at].first_id <= lease.last:
                messages += self._covered(batches[at], lease)
                at += 1
            yield lease, messages

    def _covered(self, stored: StoredBatch, lease: Lease) -> Iterator[Message]:
        first_id = stored.first_id
        entries = self._entries(stored)
        for id_ in range(max(lease.first, first_id), min(lease.last, stored.last_id) + 1):
            yield message_of(id_, entries[id_ - first_id], lease.attempts, None)

    def _entries(self, stored: StoredBatch) -> list[Entry]:
        blob = stored.blob
        if len(blob) < SMALL_BYTES:
            return decode(blob).entries()
        known = self._opened.get(stored.last_id)
        if known is None or known[0] != blob:
            known = self._opened[stored.last_id] = blob, decode(blob).entries()
            if len(self._opened) > MAX_REMEMBERED:
                self._opened.popitem(last=False)
        self._opened.move_to_end(stored.last_id)
        return known[1]
