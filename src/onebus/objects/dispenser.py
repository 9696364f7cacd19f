"""Hands out single messages of a queue under leases, to callers who come back later with an id.

Whoever asks while a request is on its way to the store waits for the next one, which then takes messages for all who
ask, and settles all that was done, in one step. So a quiet caller pays one round trip, and a hundred callers at once
share one. Nothing is fetched ahead: a message is leased when somebody is there to take it.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from operator import attrgetter
from typing import Final

from msgspec import Struct

from onebus.errors import BusError, CorruptBatch, LeaseLost, NotAttached, StoreUnavailable
from onebus.log.claims import Lease
from onebus.message import Message
from onebus.objects.deadletters import DeadLetters
from onebus.objects.link import Link
from onebus.objects.lull import Lull
from onebus.objects.opened import OpenedBatches
from onebus.stores.base import Claim, Lost
from onebus.stores.following import RETRY_SECONDS, SAFETY_POLL_SECONDS
from onebus.stores.switchboard import Watch

MAX_HANDED_AT_ONCE: Final = 1000
"""How many messages one request to the store takes at most."""
SMALL_BYTES: Final = 64 * 1024
"""A claim that brought less than it asked for, and no more bytes than these, has found everything there was."""
MAX_CLAIMED_BYTES: Final = 4 * 1024 * 1024
IDLE_SECONDS: Final = 60.0
CORRUPT_PAUSE_SECONDS: Final = 60.0


class Held(Struct, frozen=True, gc=False):
    """A message that was handed out under a lease, and the fence that proves it."""

    message: Message
    fence: int

    @property
    def id(self) -> int:
        return self.message.id

    @property
    def lease(self) -> Lease:
        return Lease(self.message.id, self.message.id, self.fence, self.message.attempts)


class _Wish(Struct, eq=False):
    """Somebody who asks for messages."""

    answer: "asyncio.Future[list[Held]]"
    limit: int
    lease_seconds: float
    is_patient: bool
    """Whether to wait for messages that are still to come."""


class _Done(Struct, eq=False):
    """Somebody who has finished a message."""

    answer: "asyncio.Future[None]"
    lease: Lease


class Dispenser:
    """Hands out the messages of one log. It works while it is started."""

    def __init__(self, link: Link, log: str, dead: DeadLetters, *, max_attempts: int | None) -> None:
        self._link = link
        self._log = log
        self._dead = dead
        self._max_attempts = max_attempts
        self._lull = Lull()
        self._wishes: deque[_Wish] = deque()
        self._asked: list[_Wish] = []
        self._done: deque[_Done] = deque()
        self._buried: list[Lease] = []
        self._unwanted: list[Lease] = []
        self._opened = OpenedBatches()
        self._watch: Watch | None = None
        self._working: asyncio.Task[None] | None = None
        self._pause_seconds = 0.0
        self._is_stopping = False

    # Life

    async def start(self) -> None:
        """Begin to hand out; returns when no wake-up can be missed."""
        is_ready = asyncio.get_running_loop().create_future()
        self._working = self._link.run(self._work(is_ready.set_result), self._link.events, f"onebus-hands {self._log}")
        await asyncio.wait([is_ready, self._working], return_when=asyncio.FIRST_COMPLETED)
        if self._working.done():
            await self._working

    async def stop(self) -> None:
        """Answer everybody who waits, settle what is done, and give back what nobody took."""
        self._is_stopping = True
        self._ring()
        if self._working is not None:
            await asyncio.gather(self._working, return_exceptions=True)

    @property
    def is_idle(self) -> bool:
        """Whether nobody waits for anything."""
        return not self._wishes and not self._asked and not self._done

    # Asking

    async def take(self, limit: int, *, lease_seconds: float, wait_seconds: float) -> list[Held]:
        """Return up to `limit` messages, at once or as soon as there are some; none when the time is up.

        Order: who asks first is served first. Cancellation: what was taken for the caller goes back.
        """
        loop = asyncio.get_running_loop()
        if self._is_stopping:
            return []
        wish = _Wish(loop.create_future(), limit, lease_seconds, wait_seconds > 0)
        timer = loop.call_later(wait_seconds, self._lose_patience, wish) if wait_seconds > 0 else None
        self._wishes.append(wish)
        self._ring()
        try:
            with self._lull:
                return await wish.answer
        except asyncio.CancelledError:
            if wish.answer.done() and not wish.answer.cancelled() and wish.answer.exception() is None:
                self.give_back(wish.answer.result())
            raise
        finally:
            if timer is not None:
                timer.cancel()

    async def settle(self, lease: Lease) -> None:
        """Declare a message done; returns when that is stored.

        Raises:
            LeaseLost: the message is not held any more.
        """
        if self._working is None or self._working.done():
            raise _closed(self._log)
        done = _Done(asyncio.get_running_loop().create_future(), lease)
        self._done.append(done)
        self._ring()
        with self._lull:
            await done.answer

    def give_back(self, unwanted: Sequence[Held]) -> None:
        """Put messages back to the front that were taken and never handed over."""
        self._unwanted += [held.lease for held in unwanted]
        self._ring()

    def _ring(self) -> None:
        if self._watch is not None:
            self._watch.wake()

    def _lose_patience(self, wish: _Wish) -> None:
        wish.is_patient = False
        if wish not in self._asked and not wish.answer.done():
            wish.answer.set_result([])

    # Working

    async def _work(self, say_ready: Callable[[None], None]) -> None:
        try:
            async with self._link.store.watch(self._log) as watch:
                self._watch = watch
                say_ready(None)
                while not self._is_stopping:
                    if not self._has_work:
                        await watch.wait(self._pause_seconds or IDLE_SECONDS)
                    # Who pushes wakes this up, too, even if nobody is there who wants anything.
                    if not self.is_idle or self._buried or self._unwanted:
                        await self._lull.come()
                        await self._step()
                self._send_away()
                await self._step()
                while self._done or self._unwanted:
                    await self._step()
        finally:
            # Nobody may hang, whatever has happened.
            self._is_stopping = True
            self._send_away()
            _fail(self._done, _closed(self._log))
            self._done.clear()

    @property
    def _has_work(self) -> bool:
        if self._done or self._unwanted:
            return True
        return bool(self._wishes or self._buried) and not self._pause_seconds

    async def _step(self) -> None:
        """Do all that is asked for, in one request to the store if nothing goes wrong."""
        done, wishes = self._next_done(), self._next_wishes()
        others = len(self._wishes)
        buried = len(self._buried)
        settled = _joined([one.lease for one in done.values()] + self._buried)
        self._pause_seconds = 0.0
        try:
            if self._unwanted:
                await self._release()
            if wishes:
                claim = await self._claim(wishes, settled)
            else:
                claim = Claim((), (), await self._settle(settled))
        except BusError as error:
            _fail([*done.values(), *wishes], error)
            self._rest(RETRY_SECONDS if isinstance(error, StoreUnavailable) else SAFETY_POLL_SECONDS)
        else:
            del self._buried[:buried]
            self._confirm(done, claim.lost)
            await self._hand_out(claim, wishes)
            if wishes and _has_found_all(claim, wishes):
                self._answer_impatient([*wishes, *islice(self._wishes, others)])
                self._rest(SAFETY_POLL_SECONDS if claim.retry_after_seconds is None else claim.retry_after_seconds)
        finally:
            self._asked = []
            self._wishes.extendleft(wish for wish in reversed(wishes) if not wish.answer.done())

    def _next_done(self) -> dict[int, _Done]:
        """Return what is to be settled, each message once: of two that name one, each has its own outcome."""
        chosen: dict[int, _Done] = {}
        later: deque[_Done] = deque()
        for one in self._done:
            if chosen.setdefault(one.lease.first, one) is not one:
                later.append(one)
        self._done = later
        return chosen

    def _next_wishes(self) -> list[_Wish]:
        """Return those who are next and want to hold their messages for the same time."""
        chosen = self._asked
        limit = 0
        while self._wishes and limit < MAX_HANDED_AT_ONCE:
            wish = self._wishes[0]
            if chosen and wish.lease_seconds != chosen[0].lease_seconds:
                break
            self._wishes.popleft()
            if not wish.answer.done():
                chosen.append(wish)
                limit += wish.limit
        return chosen

    async def _claim(self, wishes: Sequence[_Wish], settled: Sequence[Lease]) -> Claim:
        return await self._link.store.claim(
            self._log,
            limit=min(sum(wish.limit for wish in wishes), MAX_HANDED_AT_ONCE),
            lease_seconds=wishes[0].lease_seconds,
            owner=self._link.client,
            max_bytes=MAX_CLAIMED_BYTES,
            settle=settled,
        )

    async def _settle(self, settled: Sequence[Lease]) -> Lost:
        try:
            await self._link.store.settle(self._log, settled)
        except LeaseLost as error:
            return error.lost
        return ()

    async def _release(self, *, delay_seconds: float = 0.0) -> None:
        unwanted, self._unwanted = self._unwanted, []
        try:
            await self._link.store.release(self._log, unwanted, delay_seconds=delay_seconds, attempted=False)
        except BusError as error:
            # They come back when their lease ends.
            self._link.log.debug("%d messages of %s could not be given back: %s", len(unwanted), self._log, error)

    def _confirm(self, done: dict[int, _Done], lost: Lost) -> None:
        for first, last in lost:
            for id_ in range(first, last + 1):
                if (one := done.pop(id_, None)) is not None and not one.answer.done():
                    one.answer.set_exception(LeaseLost(self._log, [(id_, id_)]))
        for one in done.values():
            if not one.answer.done():
                one.answer.set_result(None)

    # Handing out

    async def _hand_out(self, claim: Claim, wishes: Sequence[_Wish]) -> None:
        try:
            received = await self._fit_to_deliver(claim)
        except CorruptBatch as error:
            error.add_note(f"in {self._log!r}, among the messages {_ranges(claim.leases)}")
            self._link.tell(self._link.events, "error", error)
            self._unwanted += claim.leases
            await self._release(delay_seconds=CORRUPT_PAUSE_SECONDS)
            received = []
        rest = iter(received)
        for wish in wishes:
            if not wish.answer.done() and (taken := list(islice(rest, wish.limit))):
                wish.answer.set_result(taken)
        self._unwanted += [held.lease for held in rest]

    async def _fit_to_deliver(self, claim: Claim) -> list[Held]:
        """Return what was claimed, without those that were tried too often, which are buried."""
        fit: list[Held] = []
        for lease, messages in self._opened.messages(claim):
            held = [Held(message, lease.fence) for message in messages]
            if self._max_attempts is not None and lease.attempts > self._max_attempts:
                await self._bury(held, self._max_attempts)
            else:
                fit += held
        return fit

    async def _bury(self, held: Sequence[Held], attempts: int) -> None:
        messages = [one.message for one in held]
        # One more attempt than it takes tells that somebody may have been killed between burying and settling.
        is_repeated = messages[0].attempts > attempts + 1
        for message in messages:
            message.attempts = attempts
        try:
            await self._dead.add(messages, f"delivered {attempts} times and never done", once=is_repeated)
        except BusError as error:
            self._link.tell(self._link.events, "error", error)
            self._unwanted += [one.lease for one in held]
            await self._release(delay_seconds=SAFETY_POLL_SECONDS)
        else:
            self._buried += [one.lease for one in held]

    def _answer_impatient(self, wishes: Sequence[_Wish]) -> None:
        for wish in wishes:
            if not wish.is_patient and not wish.answer.done():
                wish.answer.set_result([])

    def _send_away(self) -> None:
        while self._wishes:
            wish = self._wishes.popleft()
            if not wish.answer.done():
                wish.answer.set_result([])

    def _rest(self, seconds: float) -> None:
        """Do not look for messages before somebody rings, or the time is up."""
        self._pause_seconds = max(min(seconds, SAFETY_POLL_SECONDS), 0.001)


def _joined(leases: list[Lease]) -> list[Lease]:
    """Return leases with neighbours that have the same fence made one: a range costs a store no more than one id."""
    joined: list[Lease] = []
    for lease in sorted(leases, key=attrgetter("first")):
        last = joined[-1] if joined else None
        if last is not None and last.last + 1 == lease.first and last.fence == lease.fence:
            joined[-1] = Lease(last.first, lease.last, last.fence)
        else:
            joined.append(lease)
    return joined


def _has_found_all(claim: Claim, wishes: Sequence[_Wish]) -> bool:
    is_short = claim.count < sum(wish.limit for wish in wishes)
    return is_short and sum(len(batch.blob) for batch in claim.batches) < SMALL_BYTES


def _closed(log: str) -> NotAttached:
    return NotAttached(f"Nothing is handed out from {log!r} any more: the work queue was closed.")


def _fail(requests: Iterable[_Done | _Wish], error: BusError) -> None:
    for request in requests:
        if not request.answer.done():
            request.answer.set_exception(error)


def _ranges(leases: Sequence[Lease]) -> str:
    return ", ".join(f"{lease.first} to {lease.last}" for lease in leases)
