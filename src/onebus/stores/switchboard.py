"""Who in this process waits for which log or signal of a store.

A store keeps one connection for wake-ups, however many readers there are; the switchboard hands what comes
in on to those who asked. Growth of a log is a flag, not a queue: a reader that is busy is told once.
"""

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Self, TypeVar
from uuid import uuid4

from msgspec import Struct

from onebus.errors import SignalsMissed, StoreClosed
from onebus.log.claims import Lease
from onebus.log.stored import StoredBatch
from onebus.stores.news import AnyNews

MAX_WAITING_SIGNALS: Final = 10_000
MAX_WAITING_NEWS: Final = 100
MAX_WAITING_NEWS_BYTES: Final = 16 * 1024 * 1024
"""A reader that is further behind than either of these has to look by itself."""


class Claimed(Struct, frozen=True):
    """Messages that a store has claimed for somebody who waits."""

    lease: Lease
    batch: StoredBatch


class Watch:
    """Wakes one reader of one log."""

    def __init__(self, log: str) -> None:
        self.log = log
        self._is_woken = False
        self._waiting: asyncio.Future[bool] | None = None
        self.token = uuid4().hex
        """Tells this watch from all others, for stores that hand messages over to it."""
        self._news: list[AnyNews] = []
        self._news_bytes = 0
        self._must_look = False
        self._claims: deque[Claimed] = deque()

    def wake(self, news: AnyNews | None = None) -> None:
        if news is None or self._must_look:
            self._look_by_itself()
        else:
            self._news.append(news)
            self._news_bytes += news.size
            if len(self._news) > MAX_WAITING_NEWS or self._news_bytes > MAX_WAITING_NEWS_BYTES:
                self._look_by_itself()
        self._ring()

    def take_news(self, epoch: str, after: int) -> list[StoredBatch] | None:
        """Return the batches that directly follow id `after`, if the wake-ups so far have brought all of them.

        None means that the reader has to look by itself.
        """
        news, must_look = self._news, self._must_look
        self._news, self._news_bytes, self._must_look = [], 0, False
        if must_look:
            return None
        try:
            told = [one.read() for one in news]
        except ValueError:
            # Whoever may speak to the server may also talk nonsense there.
            return None
        batches = [batch for _, batch in told if batch.last_id > after]
        firsts = [after + 1, *(batch.last_id + 1 for batch in batches)]
        is_dense = all(batch.first_id == first for batch, first in zip(batches, firsts, strict=False))
        return batches if is_dense and all(one == epoch for one, _ in told) else None

    def _look_by_itself(self) -> None:
        """Keep no news any more: the reader has to look anyway, and finds all of them."""
        self._news, self._news_bytes, self._must_look = [], 0, True

    def hand_over(self, claimed: Claimed) -> None:
        """Bring messages that the store has claimed for whoever waits here."""
        self._claims.append(claimed)
        self._ring()

    def take_claimed(self) -> Claimed | None:
        """Return messages that were handed over, if any were."""
        return self._claims.popleft() if self._claims else None

    async def wait(self, timeout_seconds: float) -> bool:
        """Return True once the log may have something new, False when the time is up.

        What happened since the last call counts: it returns at once. Cancellation forgets nothing.
        """
        if not self._is_woken:
            loop = asyncio.get_running_loop()
            waiting = self._waiting = loop.create_future()
            timer = loop.call_later(timeout_seconds, _give_up, waiting)
            try:
                if not await waiting:
                    return False
            finally:
                timer.cancel()
                self._waiting = None
        self._is_woken = False
        return True

    def _ring(self) -> None:
        self._is_woken = True
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(True)


def _give_up(waiting: "asyncio.Future[bool]") -> None:
    if not waiting.done():
        waiting.set_result(False)


class Subscription:
    """The payloads of one signal for one listener, in order, as an async iterator."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._payloads: deque[bytes] = deque()
        self._missed = 0
        self._closed = False
        self._arrived = asyncio.Event()

    def deliver(self, payload: bytes) -> None:
        if len(self._payloads) == MAX_WAITING_SIGNALS:
            self._payloads.popleft()
            self._missed += 1
        self._payloads.append(payload)
        self._arrived.set()

    def close(self) -> None:
        self._closed = True
        self._arrived.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        """Return the next payload.

        Raises:
            SignalsMissed: the listener fell so far behind that payloads were dropped; the next call goes on.
            StoreClosed: the store was closed.
        """
        while not self._payloads:
            if self._closed:
                raise StoreClosed(f"The store was closed while {self.name!r} was listened to.")
            self._arrived.clear()
            await self._arrived.wait()
        if self._missed:
            missed, self._missed = self._missed, 0
            raise SignalsMissed(
                f"{missed} signals of {self.name!r} were dropped because they were read too slowly; "
                f"at most {MAX_WAITING_SIGNALS} may wait."
            )
        return self._payloads.popleft()


_Waiter = TypeVar("_Waiter", Watch, Subscription)


class Switchboard:
    """All watches and subscriptions of one store."""

    def __init__(self) -> None:
        self._watches: dict[str, set[Watch]] = {}
        self._subscriptions: dict[str, set[Subscription]] = {}
        self._expectant: dict[str, Watch] = {}

    def expect(self, watch: Watch) -> bool:
        """Remember a watch to which messages may be handed over; return whether that is new."""
        is_new = watch.token not in self._expectant
        self._expectant[watch.token] = watch
        return is_new

    def forget(self, watch: Watch) -> None:
        self._expectant.pop(watch.token, None)

    def hand_over(self, token: str, claimed: Claimed) -> None:
        watch = self._expectant.get(token)
        if watch is not None:
            watch.hand_over(claimed)

    @property
    def expectant(self) -> list[str]:
        """The tokens of all watches to which messages may be handed over."""
        return list(self._expectant)

    @property
    def watched_logs(self) -> list[str]:
        return list(self._watches)

    @property
    def heard_signals(self) -> list[str]:
        return list(self._subscriptions)

    def hears(self, signal: str) -> bool:
        """Return whether anybody here listens to a signal."""
        return signal in self._subscriptions

    @contextmanager
    def watch(self, log: str) -> Iterator[Watch]:
        watch = Watch(log)
        with _member(self._watches, log, watch):
            yield watch

    @contextmanager
    def subscribe(self, name: str) -> Iterator[Subscription]:
        subscription = Subscription(name)
        with _member(self._subscriptions, name, subscription):
            yield subscription

    def is_last_watch(self, watch: Watch) -> bool:
        return self._watches.get(watch.log) == {watch}

    def is_last_subscription(self, subscription: Subscription) -> bool:
        return self._subscriptions.get(subscription.name) == {subscription}

    def wake(self, log: str, news: AnyNews | None = None) -> None:
        for watch in self._watches.get(log, ()):
            watch.wake(news)

    def wake_all(self) -> None:
        for watches in self._watches.values():
            for watch in watches:
                watch.wake()

    def deliver(self, name: str, payload: bytes) -> int:
        subscriptions = self._subscriptions.get(name, ())
        for subscription in subscriptions:
            subscription.deliver(payload)
        return len(subscriptions)

    def close(self) -> None:
        for subscriptions in self._subscriptions.values():
            for subscription in subscriptions:
                subscription.close()
        self.wake_all()


@contextmanager
def _member(groups: dict[str, set[_Waiter]], name: str, waiter: _Waiter) -> Iterator[None]:
    groups.setdefault(name, set()).add(waiter)
    try:
        yield
    finally:
        group = groups[name]
        group.discard(waiter)
        if not group:
            del groups[name]
