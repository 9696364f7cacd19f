"""The messages of a queue that could not be handled, kept with the reason until somebody sends them again."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from onebus.log.batch import Entry, Kind, encode
from onebus.message import Message
from onebus.objects.link import Link
from onebus.objects.unfinished import Unfinished
from onebus.objects.unpacking import claimed_entries, entries_by_id, without_headers
from onebus.payload import unpack

KEPT_SECONDS: Final = 7 * 24 * 3600.0
REDRIVE_LEASE_SECONDS: Final = 30.0
REDRIVEN_AT_ONCE: Final = 500
MAX_LETTERS: Final = 1_000_000_000

REASON_HEADER: Final = "onebus-reason"
ATTEMPTS_HEADER: Final = "onebus-attempts"
ID_HEADER: Final = "onebus-id"
_OWN_HEADERS = {REASON_HEADER, ATTEMPTS_HEADER, ID_HEADER}


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that could not be handled."""

    id: int
    """Its place among the dead letters."""
    data: Any
    reason: str
    attempts: int
    message_id: int
    """Its id in the queue."""
    timestamp: float


class DeadLetters:
    """The dead letters of one queue. They are kept for seven days after the last one was added."""

    def __init__(self, link: Link, log: str, queue_log: str, create_queue: Callable[[], Awaitable[object]]) -> None:
        self._link = link
        self._log = log
        self._queue_log = queue_log
        self._create_queue = create_queue

    async def add(self, messages: Sequence[Message], reason: str, *, once: bool = False) -> None:
        """Keep messages with the reason why. They are still in the queue until they are settled there.

        With ``once``, those that are here already are not added again.
        """
        if once:
            known = {letter.message_id for letter in await self.list(MAX_LETTERS)}
            messages = [message for message in messages if message.id not in known]
        if not messages:
            return
        store = self._link.store
        await store.touch(self._log, ttl_seconds=KEPT_SECONDS, create=True)
        entries = [_letter(message, reason) for message in messages]
        await store.append(self._log, encode(entries, now_ms=self._link.clock()))

    async def count(self) -> int:
        stat = await self._link.store.stat(self._log)
        return stat.claimable + stat.held if stat is not None else 0

    async def list(self, limit: int = 100) -> list[DeadLetter]:
        """Return the oldest dead letters; they stay."""
        found: list[DeadLetter] = []
        there = await Unfinished.of(self._link.store, self._log)
        after = there.position(0)
        while len(found) < limit:
            piece = await self._link.store.read(self._log, after=after, limit=limit)
            if not piece.batches:
                break
            for stored in piece.batches:
                found += [_read(id_, entry) for id_, entry in entries_by_id(stored) if id_ > after and id_ in there]
                after = stored.last_id
        return found[:limit]

    async def redrive(self, limit: int | None = None) -> int:
        """Push dead letters to their queue again, oldest first, and return how many.

        Delivery: a crash in the middle may push some of them twice; none is lost.
        """
        store, done = self._link.store, 0
        while limit is None or done < limit:
            most = REDRIVEN_AT_ONCE if limit is None else min(REDRIVEN_AT_ONCE, limit - done)
            claim = await store.claim(self._log, limit=most, lease_seconds=REDRIVE_LEASE_SECONDS, owner="redrive")
            if not claim.leases:
                break
            entries = [without_headers(entry, _OWN_HEADERS) for _, entry in claimed_entries(claim)]
            await self._create_queue()
            await store.append(self._queue_log, encode(entries, now_ms=self._link.clock()))
            await store.settle(self._log, claim.leases)
            done += len(entries)
        return done


def _letter(message: Message, reason: str) -> Entry:
    headers = {
        **message.headers,
        REASON_HEADER: reason,
        ATTEMPTS_HEADER: str(message.attempts),
        ID_HEADER: str(message.id),
    }
    return Entry(message.raw, message.kind, message.key, headers, message.time_ms)


def _read(id_: int, entry: Entry) -> DeadLetter:
    headers = entry.headers or {}
    return DeadLetter(
        id=id_,
        data=unpack(entry.value, Kind(entry.kind)),
        reason=headers.get(REASON_HEADER, ""),
        attempts=int(headers.get(ATTEMPTS_HEADER, "0")),
        message_id=int(headers.get(ID_HEADER, "0")),
        timestamp=(entry.time_ms or 0) / 1000,
    )
