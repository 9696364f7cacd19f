"""From the batches of a log to what they hold: messages for a consumer, or entries to put somewhere else."""

from collections.abc import Container, Iterator, Sequence

from onebus.log.batch import Batch, Entry, decode
from onebus.log.claims import Lease
from onebus.log.stored import StoredBatch
from onebus.message import Message
from onebus.objects.holding import Holding
from onebus.stores.base import Claim, Slice


def claimed_messages(holding: Holding, decoded: Sequence[tuple[StoredBatch, Batch]], needs_ack: bool) -> list[Message]:
    """Return the messages of one lease."""
    lease = holding.lease
    keeper = holding if needs_ack else None
    found: list[Message] = []
    for stored, batch in decoded:
        first, last = max(lease.first, stored.first_id), min(lease.last, stored.last_id)
        if first > last:
            continue
        begin, end = first - stored.first_id, last - stored.first_id + 1
        if batch.is_plain:
            kind, time_ms, attempts = batch.kind, batch.time_ms, lease.attempts
            found += [
                Message(first + offset, value, kind, time_ms, attempts, keeper)
                for offset, value in enumerate(batch.payloads()[begin:end])
            ]
        else:
            found += [
                Message(
                    first + offset,
                    entry.value,
                    entry.kind,
                    entry.time_ms or batch.time_ms,
                    lease.attempts,
                    keeper,
                    entry.key,
                    entry.headers,
                )
                for offset, entry in enumerate(batch.entries()[begin:end])
            ]
    return found


def unread_messages(found: Slice, after: int) -> Iterator[Message]:
    """Return the messages of a slice that follow an id."""
    for stored in found.batches:
        for message_id, entry in entries_by_id(stored):
            if message_id > after:
                time_ms = entry.time_ms or 0
                yield Message(message_id, entry.value, entry.kind, time_ms, 0, None, entry.key, entry.headers)


def entries_by_id(stored: StoredBatch) -> Iterator[tuple[int, Entry]]:
    """Return the entries of a batch with their ids."""
    return enumerate(decode(stored.blob).entries(), stored.first_id)


def claimed_entries(claim: Claim) -> list[tuple[Lease, Entry]]:
    """Return what was claimed, each entry with the lease on it alone."""
    entries = dict(pair for stored in claim.batches for pair in entries_by_id(stored))
    return [
        (lease.part(id_, id_), entries[id_]) for lease in claim.leases for id_ in range(lease.first, lease.last + 1)
    ]


def without_headers(entry: Entry, names: Container[str]) -> Entry:
    """Return an entry as it was pushed, without the headers that were added to it."""
    headers = {name: text for name, text in (entry.headers or {}).items() if name not in names}
    return Entry(entry.value, entry.kind, entry.key, headers or None, entry.time_ms)
