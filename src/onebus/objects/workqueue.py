"""A queue whose messages are handed out one by one, to workers that are no part of this process.

It is the queue of the same name, so what one pushes the other consumes:

queue:NAME              its messages
queue:NAME|later        messages that wait for their time
queue:NAME|dead         messages that could not be handled

Whoever holds a message is known to the store alone, so any process may finish what another one handed out, and a lease
ends in time even if the process that gave it was killed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Final, Self

from msgspec import structs

from onebus.errors import AlreadyAttached, InvalidArgument, LeaseLost, NotAttached, StoreUnavailable
from onebus.log.batch import Entry
from onebus.log.claims import ANY_FENCE, NO_FENCE, Lease
from onebus.log.writer import LogWriter
from onebus.message import Message
from onebus.objects.deadletters import DeadLetters
from onebus.objects.delays import DUE_HEADER, Delays
from onebus.objects.dispenser import MAX_HANDED_AT_ONCE, Dispenser, Held
from onebus.objects.link import Link
from onebus.objects.lull import Lull
from onebus.objects.places import place_of_object
from onebus.objects.queues import QueueState, queue_state
from onebus.objects.unfinished import Unfinished
from onebus.objects.unpacking import unread_messages
from onebus.payload import Data, pack
from onebus.stores.base import FOREVER

LEASE_SECONDS: Final = 10.0
MAX_LEASE_SECONDS: Final = 7 * 24 * 3600.0
MAX_NUMBER: Final = 1 << 53
"""Greater ids and fences are never given: every store and JSON can keep those below."""
MAX_BATCH_BYTES: Final = 64 * 1024
"""A message is claimed together with the batch it is in, so batches are kept small here."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A message of a work queue as it is listed, and whether somebody holds it."""

    message: Message
    is_held: bool


class WorkQueue:
    """A queue that hands out messages under leases. Create it with `Bus.work_queue`, and use it in ``async with``.

    Delivery: at least once. Who is handed a message has ``lease_seconds`` to finish it; then it is at the front of the
    queue again. After ``max_attempts`` deliveries it goes to the dead letters instead. Order: by id, which is the order
    of pushing. The queue never expires.
    """

    def __init__(
        self, link: Link, name: str, *, lease_seconds: float = LEASE_SECONDS, max_attempts: int | None = None
    ) -> None:
        if max_attempts is not None and max_attempts < 1:
            raise InvalidArgument(f"max_attempts must be at least 1, but is {max_attempts}.")
        self.name = name
        self.lease_seconds = _checked_lease(lease_seconds)
        self._link = link
        self._log = place_of_object("queue", name)
        self._later_log = f"{self._log}|later"
        limits = replace(link.limits, max_batch_bytes=MAX_BATCH_BYTES)
        self._lull = Lull()
        self._writer = LogWriter(self._append, clock=link.clock, limits=limits, gather=self._lull.come)
        self._delays = Delays(link, self._later_log, self._log, link.events)
        self.dead = DeadLetters(link, f"{self._log}|dead", self._log, self._live_for_ever)
        """The messages that could not be handled."""
        self._dispenser = Dispenser(link, self._log, self.dead, max_attempts=max_attempts)
        self._is_open = False
        self._has_appended = False

    # Life

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Begin to hand out messages. A queue that exists lives for ever from now on."""
        if self._is_open:
            raise AlreadyAttached(f"Work queue {self.name!r} is open already.")
        await self._link.store.touch(self._log, ttl_seconds=FOREVER)
        await self._dispenser.start()
        self._delays.start()
        self._link.enter(self)
        self._is_open = True

    async def close(self) -> None:
        """Send away who still waits, and return when all that was asked for is stored. Closing twice does nothing."""
        if self._is_open:
            self._is_open = False
            self._link.leave(self)
            await self._dispenser.stop()
            await self._delays.stop()
            await self._writer.close()

    @property
    def is_open(self) -> bool:
        return self._is_open

    async def detach(self) -> None:
        """Close it, because the bus disconnects."""
        await self.close()

    @property
    def is_idle(self) -> bool:
        """Whether nobody waits for a message or an answer."""
        return self._dispenser.is_idle

    def _check_open(self) -> None:
        if not self._is_open:
            raise NotAttached(f"Work queue {self.name!r} is not open. Use it in `async with`.")

    # Pushing

    async def push(
        self,
        data: Data,
        *,
        key: bytes | None = None,
        headers: dict[str, str] | None = None,
        delay_seconds: float = 0.0,
    ) -> int:
        """Push a message and return its id once it is stored; a delayed one has none until it is due, and returns 0.

        Raises:
            NotSerializable, PayloadTooLarge: the message cannot be stored.
        """
        self._check_open()
        value, kind = pack(data)
        with self._lull:
            if key is None and not headers and not delay_seconds:
                return await self._writer.append_value(self._log, value, kind)
            entry = Entry(value, kind, key, headers)
            return await (self._delay(entry, delay_seconds) if delay_seconds else self._writer.append(self._log, entry))

    async def push_many(self, entries: Sequence[Entry]) -> list[int]:
        """Push messages as the log keeps them, and return their ids once all are stored."""
        self._check_open()
        return await self._writer.append_many(self._log, entries)

    async def _delay(self, entry: Entry, seconds: float) -> int:
        due_ms = self._link.clock() + round(seconds * 1000)
        self._delays.expect(due_ms)
        headers = {**(entry.headers or {}), DUE_HEADER: str(due_ms)}
        await self._writer.append(self._later_log, structs.replace(entry, headers=headers))
        return 0

    async def _append(self, log: str, blob: bytes) -> int:
        first_id = await self._link.store.append(log, blob)
        try:
            if log == self._later_log:
                await self._delays.keep(is_new=first_id == 1)
            elif first_id == 1 or not self._has_appended:
                self._has_appended = True
                await self._live_for_ever()
        except StoreUnavailable as error:
            self._link.log.debug("the time to live of %s could not be set: %s", log, error)
        return first_id

    async def _live_for_ever(self) -> None:
        await self._link.store.touch(self._log, ttl_seconds=FOREVER)

    # Handing out

    async def next(
        self, limit: int = 1, *, lease_seconds: float | None = None, wait_seconds: float = 0.0
    ) -> list[Held]:
        """Return the messages that are next, up to `limit`; without ``wait_seconds`` at once, even if there are none.

        Order: of those who wait, who came first is served first. Cancellation: what was taken goes back.
        """
        self._check_open()
        if not 0 < limit <= MAX_HANDED_AT_ONCE:
            raise InvalidArgument(f"limit must be from 1 to {MAX_HANDED_AT_ONCE}, but is {limit}.")
        lease = self.lease_seconds if lease_seconds is None else _checked_lease(lease_seconds)
        return await self._dispenser.take(limit, lease_seconds=lease, wait_seconds=wait_seconds)

    async def done(self, message_id: int, fence: int | None = None) -> None:
        """Declare a message done; returns when that is stored.

        With the ``fence`` that came with the message this may be repeated: a message that is finished already, by
        whom ever, is done. Without it, the message must be held by somebody at this moment.

        Raises:
            LeaseLost: it is not held any more, by this lease or by anybody.
        """
        self._check_open()
        if fence is None:
            await self._dispenser.settle(_lease(message_id, ANY_FENCE))
            return
        try:
            await self._dispenser.settle(_lease(message_id, fence))
        except LeaseLost:
            if not await self._is_finished(message_id):
                raise

    async def release(self, message_id: int, fence: int, *, delay_seconds: float = 0.0) -> None:
        """Give a message back, to be handed out again before newer ones, after ``delay_seconds``.

        Raises:
            LeaseLost: it is somebody else's by now, or finished.
        """
        self._check_open()
        lease, delay = _lease(message_id, fence), _checked_delay(delay_seconds)
        await self._link.store.release(self._log, [lease], delay_seconds=delay)

    async def extend(self, message_id: int, fence: int, *, lease_seconds: float | None = None) -> None:
        """Hold a message for ``lease_seconds`` from now.

        Raises:
            LeaseLost: it is somebody else's by now, or finished.
        """
        self._check_open()
        seconds = self.lease_seconds if lease_seconds is None else _checked_lease(lease_seconds)
        await self._link.store.extend(self._log, [_lease(message_id, fence)], lease_seconds=seconds)

    def give_back(self, unwanted: Sequence[Held]) -> None:
        """Put messages back that never reached who had asked for them; this delivery is not counted."""
        self._dispenser.give_back(unwanted)

    async def _is_finished(self, message_id: int) -> bool:
        there = await Unfinished.of(self._link.store, self._log)
        return message_id <= there.last_id and message_id not in there

    # Asking

    async def state(self) -> QueueState:
        """Return how many messages wait, are held, are dead and are delayed."""
        return await queue_state(self._link.store, self.name)

    async def last_id(self) -> int:
        """Return the id of the newest message; 0 if there has never been one."""
        stat = await self._link.store.stat(self._log)
        return stat.last_id if stat is not None else 0

    async def read(self, message_id: int) -> Message | None:
        """Return a message that is not done, or whose batch is not; it stays where it is."""
        found = await self._link.store.read(self._log, after=message_id - 1, limit=1)
        messages: Iterable[Message] = unread_messages(found, message_id - 1)
        return next((message for message in messages if message.id == message_id), None)

    async def list(self, after: int = 0, limit: int = 100) -> list[Listed]:
        """Return the messages with ids greater than `after` that are not done; they stay where they are."""
        store = self._link.store
        spans = [span for span in await store.unfinished(self._log) if span.last > after]
        found: list[Listed] = []
        for span in spans:
            at = max(after, span.first - 1)
            while at < span.last and len(found) < limit:
                messages = list(unread_messages(await store.read(self._log, after=at, limit=limit), at))
                if not messages:
                    break
                found += [Listed(message, span.is_held) for message in messages if message.id <= span.last]
                at = messages[-1].id
            if len(found) >= limit:
                break
        return found[:limit]


def _lease(message_id: int, fence: int) -> Lease:
    if not 0 < message_id < MAX_NUMBER:
        raise InvalidArgument(f"There is no message with the id {message_id}: ids start at 1.")
    if fence == NO_FENCE or not ANY_FENCE <= fence < MAX_NUMBER:
        raise InvalidArgument(f"{fence} is not the fence of any lease.")
    return Lease(message_id, message_id, fence)


def _checked_lease(seconds: float) -> float:
    if not 0 < seconds <= MAX_LEASE_SECONDS:
        raise InvalidArgument(f"A lease takes more than 0 and at most {MAX_LEASE_SECONDS:g} seconds, not {seconds:g}.")
    return seconds


def _checked_delay(seconds: float) -> float:
    if not 0 <= seconds < inf:
        raise InvalidArgument(f"A delay is 0 seconds or more, not {seconds:g}.")
    return seconds
