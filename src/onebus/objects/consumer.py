"""Takes messages out of a queue for one consumer, and gives back what was not handed over.

Every mode that removes messages is a claim with a lease, told apart by what happens when the lease ends. At most once:
the messages are done, so a crash loses what was fetched, but stopping gives it back. Reliable: they are delivered
again, and the consumer's heartbeat keeps the lease alive as long as the consumer lives. With a lease of its own: they
are delivered again unless they are acknowledged in time, however alive the consumer is.

How much is fetched at once adapts to the pace of the consumer: a slow one takes one message after the other and leaves
the rest to its peers, a fast one takes thousands.
"""

import asyncio
import time
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from math import inf
from typing import TYPE_CHECKING, Final, Protocol

from onebus.errors import BusError, CorruptBatch, LeaseLost, StoreUnavailable
from onebus.log.batch import decode
from onebus.log.claims import Lease
from onebus.message import Message
from onebus.objects.holding import Holding
from onebus.objects.options import ConsumeOptions
from onebus.objects.unfinished import Unfinished
from onebus.objects.unpacking import claimed_messages, unread_messages
from onebus.stores.base import Claim, Lost, Store
from onebus.stores.following import RETRY_SECONDS, SAFETY_POLL_SECONDS

if TYPE_CHECKING:
    from onebus.stores.switchboard import Watch

LEASE_SECONDS: Final = 30.0
"""How long messages stay with a consumer that was killed."""
WORK_AHEAD_SECONDS: Final = 0.2
"""How much work a consumer fetches ahead, judging by the pace of the first messages of its last fetch."""
MESSAGES_SAMPLED: Final = 64
MAX_PREFETCH: Final = 100_000
SMALL_BYTES: Final = 64 * 1024
MAX_PREFETCH_BYTES: Final = 1024 * 1024 + 2 * SMALL_BYTES
"""A fast consumer is held back by this one. It lets a fetch end between two batches, so that none is fetched twice.

There is always room for a small fetch and one more batch: only a larger one may have left messages behind for their
size, and not because there are none.
"""
PARK_SECONDS: Final = 0.003
"""How long a consumer has nothing to do before it lets the store claim the next messages for it."""
IDLE_SECONDS: Final = 0.05
"""How long a consumer with nothing to do waits before it settles what is done."""
CORRUPT_PAUSE_SECONDS: Final = 60.0
MESSAGES_PER_TURN: Final = 500
"""After so many messages without a pause the event loop gets its turn."""


class Host(Protocol):
    """The object that a consumer works for."""

    @property
    def store(self) -> Store: ...

    async def begin(self, consumer: "Consumer") -> None:
        """Return when there is something to consume from, or the consumer was stopped."""

    async def ended(self, consumer: "Consumer") -> None:
        """Hear that a consumer has given everything back."""

    async def report(self, error: Exception) -> None:
        """Hear of what went wrong."""

    async def bury(self, messages: Sequence[Message], reason: str) -> None:
        """Put messages into the dead-letter queue."""


class Consumer:
    """One run of consuming: iterate `messages`, and `stop` from wherever you are."""

    def __init__(self, host: Host, log: str, options: ConsumeOptions, *, owner: str) -> None:
        self.log = log
        self.options = options
        self.handed = 0
        """How many messages were handed over."""
        self.has_begun = False
        """Whether there is something to consume from; set by the host."""
        self.stopping = asyncio.Event()
        self._host = host
        self._owner = owner
        self._holdings: list[Holding] = []
        self._acked: list[Holding] = []
        self._done: list[Lease] = []
        self._limit = options.prefetch or 1
        self._claiming: asyncio.Task[_Fetched] | None = None
        self._beating: asyncio.Task[None] | None = None
        self._watch: Watch | None = None
        self._is_waiting = False
        self._is_drained = False
        self._is_parked = False
        self._has_parked = False
        self._look_at = 0.0
        self._stopping = False
        self._returning: asyncio.Task[None] | None = None
        self._lease_seconds = LEASE_SECONDS if options.lease is None else options.lease * 1.5
        self._settling = asyncio.Lock()
        self._loop: weakref.ref[AsyncGenerator[Message]] | None = None

    def messages(self) -> AsyncGenerator[Message]:
        """Hand over messages as they come, until stopped."""
        messages = self._claimed() if self.options.remove else self._replayed()
        self._loop = weakref.ref(messages, self._left)
        return messages

    def _left(self, _: object) -> None:
        # The event loop closes a generator whose loop was left by break, but later: it may not hinder the next one.
        self._stopping = True
        self.stopping.set()

    @property
    def is_over(self) -> bool:
        """Whether it is too late to acknowledge anything."""
        return self._returning is not None

    async def stop(self) -> None:
        """Hand over nothing more, and give back what was not handed over. May be called from a handler."""
        self._stopping = True
        self.stopping.set()
        self._wake()
        await self._give_back()

    @asynccontextmanager
    async def _running(self) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._give_back)
            await self._host.begin(self)
            if self.options.limit == 0:
                self._stopping = True
            if not self._stopping:
                self._watch = await stack.enter_async_context(self._host.store.watch(self.log))
                self._owner = self._watch.token
            yield

    # Removing messages

    async def _claimed(self) -> AsyncGenerator[Message]:
        async with self._running():
            if not self._stopping:
                self._beating = asyncio.create_task(self._keep_leases(), name=f"onebus-leases {self.log}")
            most, handed = self.options.limit, 0
            while not self._stopping:
                claim, holdings = await self._fetch()
                if self._stopping:
                    return
                received = await self._received(claim, holdings)
                began, sampled = time.perf_counter(), handed + min(claim.count, MESSAGES_SAMPLED)
                for holding, messages in received:
                    for message in messages:
                        if self._stopping:
                            return
                        holding.handed = message.id
                        self.handed = handed = handed + 1
                        yield message
                        if handed == sampled:
                            self._adapt((time.perf_counter() - began) / min(claim.count, MESSAGES_SAMPLED))
                        if handed == most:
                            return
                        if handed % MESSAGES_PER_TURN == 0:
                            await asyncio.sleep(0)
                    if not self.options.needs_ack:
                        self._done += holding.take_handed()
                self._forget_finished()

    async def _fetch(self) -> "_Fetched":
        """Claim messages and settle those that are done; wait until there are some, or for too long."""
        ends_at, has_looked = self._end_of_patience(), False
        while not self._stopping:
            if (claimed := self._handed_over()) is not None:
                return claimed
            if self._is_drained and self.options.wait and not await self._parks():
                if has_looked and time.monotonic() >= ends_at:
                    self._stopping = True
                    break
                if not await self._woken(ends_at):
                    continue
                if (claimed := self._handed_over()) is not None:
                    return claimed
            has_looked = True
            try:
                claim, holdings = await self._claim()
            except StoreUnavailable:
                self._rest(RETRY_SECONDS)
            except BusError as error:
                await self._host.report(error)
                self._rest(SAFETY_POLL_SECONDS)
            else:
                if claim.lost:
                    await self._lost(LeaseLost(self.log, claim.lost))
                if claim.leases:
                    return claim, holdings
                if not self.options.wait:
                    self._stopping = True
        return Claim((), ()), []

    async def _claim(self) -> "_Fetched":
        # A cancelled claim may have taken messages. So it goes on, and what it brings is given back.
        self._claiming = asyncio.create_task(self._claim_and_settle(), name=f"onebus-claim {self.log}")
        return await asyncio.shield(self._claiming)

    async def _claim_and_settle(self) -> "_Fetched":
        async with self._settling:
            self._collect_acked()
            done = tuple(self._done)
            limit = self._limit
            if self.options.limit is not None:
                limit = min(limit, self.options.limit - self.handed)
            waiter = self._watch if self._may_park else None
            claim = await self._host.store.claim(
                self.log,
                limit=limit,
                lease_seconds=self._lease_seconds,
                redeliver=self.options.needs_ack,
                owner=self._owner,
                max_bytes=MAX_PREFETCH_BYTES,
                settle=done,
                waiter=waiter,
            )
            del self._done[: len(done)]
            self._is_parked = waiter is not None and not claim.leases
            self._has_parked = self._has_parked or waiter is not None
            for lease in claim.leases:
                if lease.attempts > 1:
                    self._lose([(lease.first, lease.last)])
            holdings = [Holding(lease, self) for lease in claim.leases]
            self._holdings += holdings
            if claim.count < limit and sum(len(batch.blob) for batch in claim.batches) < SMALL_BYTES:
                self._rest(SAFETY_POLL_SECONDS if claim.retry_after_seconds is None else claim.retry_after_seconds)
            return claim, holdings

    @property
    def _may_park(self) -> bool:
        """Whether the store may claim the next messages for this consumer, which has nothing in hand."""
        return self._host.store.hands_over and self.options.wait and not self._holdings and not self._stopping

    async def _parks(self) -> bool:
        """Return whether to look once more, so that the store knows of this consumer; while it is busy it need not."""
        if self._is_parked or not self._may_park or self._watch is None:
            return False
        await self._watch.wait(PARK_SECONDS)
        return True

    def _handed_over(self) -> "_Fetched | None":
        """Return what the store has claimed for this consumer while it waited."""
        claimed = self._watch.take_claimed() if self._watch is not None else None
        if claimed is None:
            return None
        self._is_parked = False
        holding = Holding(claimed.lease, self)
        self._holdings.append(holding)
        return Claim([claimed.lease], [claimed.batch]), [holding]

    async def _received(self, claim: Claim, holdings: list[Holding]) -> list[tuple[Holding, Iterable[Message]]]:
        """Return the messages of a claim, without those that are not to be delivered."""
        try:
            decoded = [(batch, decode(batch.blob)) for batch in claim.batches]
        except CorruptBatch as error:
            await self._put_aside(holdings, error, CORRUPT_PAUSE_SECONDS)
            return []
        received: list[tuple[Holding, Iterable[Message]]]
        received = [(holding, claimed_messages(holding, decoded, self.options.needs_ack)) for holding in holdings]
        if self.options.last or self.options.max_attempts is not None:
            return [(holding, await self._sorted_out(holding, list(messages))) for holding, messages in received]
        return received

    async def _sorted_out(self, holding: Holding, messages: list[Message]) -> list[Message]:
        """Acknowledge what was acknowledged in an earlier life, and bury what was tried too often."""
        for message in messages:
            if message.id <= self.options.last:
                holding.ack(message.id)
        messages = [message for message in messages if message.id > self.options.last]
        delivered = holding.lease.attempts - 1
        if self.options.max_attempts is None or delivered < self.options.max_attempts:
            return messages
        for message in messages:
            message.attempts = delivered
        try:
            await self._host.bury(messages, f"delivered {delivered} times and never acknowledged")
        except BusError as error:
            await self._put_aside([holding], error, SAFETY_POLL_SECONDS)
            return []
        for message in messages:
            holding.ack(message.id)
        return []

    async def _put_aside(self, holdings: list[Holding], error: BusError, seconds: float) -> None:
        """Give back what cannot be dealt with now, for some time, and report why."""
        leases = [lease for holding in holdings for lease in holding.take_rest()]
        ranges = ", ".join(f"{lease.first} to {lease.last}" for lease in leases)
        error.add_note(f"in {self.log!r}, among the messages {ranges}")
        await self._host.report(error)
        try:
            await self._host.store.release(self.log, leases, delay_seconds=seconds, attempted=False)
        except BusError:
            # They come back when their lease ends.
            return

    def _adapt(self, seconds_each: float) -> None:
        """Fetch as much at once as the consumer handles in a moment, if it goes on at this pace."""
        if self.options.prefetch is None:
            self._limit = max(1, min(int(WORK_AHEAD_SECONDS / seconds_each), MAX_PREFETCH))

    # Waiting

    def _rest(self, seconds: float) -> None:
        """Do not look again before somebody wakes this consumer, or the time is up."""
        self._is_drained = True
        self._look_at = time.monotonic() + min(seconds, SAFETY_POLL_SECONDS)

    def _end_of_patience(self) -> float:
        return inf if self.options.timeout is None else time.monotonic() + self.options.timeout

    async def _woken(self, ends_at: float) -> bool:
        """Wait, and return whether it is time to look; settle what is done meanwhile."""
        if self._watch is None:
            raise RuntimeError("a consumer that waits has a watch")
        patience = max(min(self._look_at, ends_at) - time.monotonic(), 0.001)
        is_busy = bool(self._done or self._acked)
        self._is_waiting = True
        try:
            is_woken = await self._watch.wait(min(patience, IDLE_SECONDS) if is_busy else patience)
        finally:
            self._is_waiting = False
        if not is_woken and is_busy and patience > IDLE_SECONDS:
            await self._settle()
            return False
        self._is_drained = False
        return True

    def _wake(self) -> None:
        if self._watch is not None:
            self._watch.wake()

    # What the holdings ask for

    def acked(self, holding: Holding, message_id: int) -> None:
        if self._returning is not None:
            raise LeaseLost(self.log, [(message_id, message_id)])
        self._acked.append(holding)
        if self._is_waiting:
            self._wake()

    async def ack_until(self, message_id: int) -> None:
        """Settle everything that was handed over here, up to an id, now."""
        for holding in self._holdings:
            if holding.lease.first <= message_id:
                holding.ack_until(message_id)
        await self._settle()

    async def release(self, leases: list[Lease], delay: float) -> None:
        await self._host.store.release(self.log, leases, delay_seconds=delay)

    async def extend(self, leases: list[Lease], seconds: float | None) -> None:
        await self._host.store.extend(self.log, leases, lease_seconds=seconds or self._lease_seconds)

    async def reject(self, message: Message, lease: Lease, reason: str) -> None:
        await self._host.bury([message], reason)
        await self._host.store.settle(self.log, [lease])

    def put_back(self, message_id: int) -> None:
        """Let a message that was just handed over, and those after it, count as not handed over."""
        for holding in self._holdings:
            if holding.lease.first <= message_id <= holding.handed:
                self.handed -= holding.handed - message_id + 1
                holding.handed = message_id - 1

    # Settling and giving back

    def _collect_acked(self) -> None:
        for holding in self._acked:
            self._done += holding.take_acked()
        if self._acked:
            self._acked.clear()
            self._forget_finished()

    def _forget_finished(self) -> None:
        self._holdings = [holding for holding in self._holdings if holding.is_open]

    async def _settle(self) -> None:
        """Settle what is done, now."""
        async with self._settling:
            self._collect_acked()
            done = tuple(self._done)
            if not done:
                return
            try:
                await self._host.store.settle(self.log, done)
            except LeaseLost as error:
                await self._lost(error)
            except StoreUnavailable:
                # It is tried again with the next claim, or when the consumer stops.
                return
            del self._done[: len(done)]

    async def _keep_leases(self) -> None:
        """Extend what is held, as long as this consumer lives."""
        with_handed = self.options.lease is None
        while True:
            await asyncio.sleep(self._lease_seconds / 3)
            # A message may take its time: those before it must not be delivered again meanwhile.
            await self._settle()
            held = [lease for holding in self._holdings for lease in holding.leases(with_handed=with_handed)]
            if not held:
                continue
            try:
                await self._host.store.extend(self.log, held, lease_seconds=self._lease_seconds)
            except LeaseLost as error:
                await self._lost(error)
            except StoreUnavailable:
                continue
            except Exception as error:
                await self._host.report(error)

    async def _lost(self, error: LeaseLost) -> None:
        self._lose(error.lost)
        if self.options.needs_ack and self._returning is None:
            await self._host.report(error)

    def _lose(self, lost: Lost) -> None:
        for first, last in lost:
            for holding in self._holdings:
                holding.lose(first, last)

    async def _give_back(self) -> None:
        """Settle what is done and give back the rest, once, even if the caller is cancelled meanwhile."""
        self._stopping = True
        if self._returning is None:
            if self._beating is not None:
                self._beating.cancel()
            self._returning = asyncio.create_task(self._return_everything(), name=f"onebus-return {self.log}")
        await asyncio.shield(self._returning)
        await self._host.ended(self)

    async def _return_everything(self) -> None:
        try:
            if self._claiming is not None:
                await asyncio.gather(self._claiming, return_exceptions=True)
            await self._unpark()
            holdings = list(self._holdings)
            if not self.options.needs_ack:
                self._done += [lease for holding in holdings for lease in holding.take_handed()]
            await self._settle()
            await self._release([lease for holding in holdings for lease in holding.take_rest()], attempted=False)
            await self._release([lease for holding in holdings for lease in holding.take_handed()], attempted=True)
        except BusError as error:
            await self._host.report(error)

    async def _unpark(self) -> None:
        """Wait no more, and learn what was handed over in the last moment."""
        if self._watch is None or not self._has_parked:
            return
        known = {lease.fence for lease in self._done} | {holding.lease.fence for holding in self._holdings}
        # Of a store that is away nobody learns anything; what it holds comes back when the lease ends.
        with suppress(StoreUnavailable):
            held = await self._host.store.stop_waiting(self.log, self._watch, owner=self._owner)
            self._holdings += [Holding(lease, self) for lease in held if lease.fence not in known]

    async def _release(self, leases: list[Lease], *, attempted: bool) -> None:
        if not leases:
            return
        # What is lost is with somebody else by now, or its queue was closed.
        with suppress(LeaseLost):
            await self._host.store.release(self.log, leases, attempted=attempted)

    # Leaving messages where they are

    async def _replayed(self) -> AsyncGenerator[Message]:
        async with aclosing(self._read()) as portions:
            async for messages in portions:
                for message in messages:
                    if self._stopping:
                        return
                    self.handed += 1
                    yield message
                    if self.handed == self.options.limit:
                        return

    async def _read(self) -> AsyncGenerator[list[Message]]:
        async with self._running():
            there = await Unfinished.of(self._host.store, self.log)
            after, epoch = there.position(self.options.index), ""
            to_skip = max(self.options.index - there.count, 0)
            ends_at = self._end_of_patience()
            while not self._stopping:
                try:
                    found = await self._host.store.read(self.log, after=after)
                except StoreUnavailable:
                    if time.monotonic() >= ends_at:
                        return
                    self._rest(RETRY_SECONDS)
                    await self._woken(ends_at)
                    continue
                if epoch and found.epoch != epoch:
                    # Another queue of the same name: its messages count from 1 again.
                    after, epoch, there = 0, found.epoch, Unfinished()
                    continue
                epoch = found.epoch
                if found.batches:
                    messages = [
                        one for one in unread_messages(found, after) if one.id > there.last_id or one.id in there
                    ]
                    after = found.batches[-1].last_id
                    skipped = min(to_skip, len(messages))
                    to_skip -= skipped
                    yield messages[skipped:]
                    ends_at = self._end_of_patience()
                elif not self.options.wait or time.monotonic() >= ends_at:
                    return
                else:
                    self._rest(SAFETY_POLL_SECONDS)
                    await self._woken(ends_at)


_Fetched = tuple[Claim, list[Holding]]
