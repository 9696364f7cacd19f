"""From the batches of a log to the messages that a consumer is handed."""

from collections.abc import Iterator, Sequence

from onebus.log.batch import Batch, decode
from onebus.log.stored import StoredBatch
from onebus.message import Message
from onebus.objects.holding import Holding
from onebus.stores.base import Slice


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
        batch = decode(stored.blob)
        for offset, entry in enumerate(batch.entries()):
            message_id = stored.first_id + offset
            if message_id > after:
                time_ms = entry.time_ms or batch.time_ms
                yield Message(message_id, entry.value, entry.kind, time_ms, 0, None, entry.key, entry.headers)
