"""From the batches of a log to what they hold: messages for a consumer, or entries to put somewhere else."""

from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import chain, repeat

from onebus.log.batch import Batch, Entry, decode
from onebus.log.claims import Lease
from onebus.log.stored import StoredBatch
from onebus.message import Keeper, Message
from onebus.objects.holding import Holding
from onebus.stores.base import Claim, Slice


def claimed_messages(
    holding: Holding, decoded: Sequence[tuple[StoredBatch, Batch]], needs_ack: bool
) -> Iterator[Message]:
    """Return the messages of one lease, each made when it is its turn: thousands at once would only fill memory."""
    lease = holding.lease
    keeper = holding if needs_ack else None
    parts: list[Iterable[Message]] = []
    for stored, batch in decoded:
        ids = range(max(lease.first, stored.first_id), min(lease.last, stored.last_id) + 1)
        if not ids:
            continue
        wanted = slice(ids[0] - stored.first_id, ids[-1] - stored.first_id + 1)
        if batch.is_plain:
            parts.append(
                map(
                    Message,
                    ids,
                    batch.payloads(wanted.start, wanted.stop),
                    repeat(batch.kind),
                    repeat(batch.time_ms),
                    repeat(lease.attempts),
                    repeat(keeper),
                )
            )
        else:
            entries = batch.entries()[wanted]
            parts.append(message_of(*one, lease.attempts, keeper) for one in zip(ids, entries, strict=True))
    return chain.from_iterable(parts)


def unread_messages(found: Slice, after: int) -> Iterator[Message]:
    """Return the messages of a slice that follow an id."""
    for stored in found.batches:
        for message_id, entry in entries_by_id(stored):
            if message_id > after:
                yield message_of(message_id, entry, 0, None)


def message_of(message_id: int, entry: Entry, attempts: int, keeper: Keeper | None) -> Message:
    return Message(message_id, entry.value, entry.kind, entry.time_ms or 0, attempts, keeper, entry.key, entry.headers)


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
