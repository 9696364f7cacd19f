"""The one connection on which Redis tells a store what has grown and what was signalled."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from hiredis import pack_command
from redis.asyncio.connection import AbstractConnection

from onebus.errors import StoreUnavailable
from onebus.stores.health import Health
from onebus.stores.news import PackedNews
from onebus.stores.redis.answers import claimed_of
from onebus.stores.redis.connection import DRIVER_ERRORS
from onebus.stores.redis.failures import translate
from onebus.stores.redis.line import Line
from onebus.stores.redis.names import Channels, Topic
from onebus.stores.switchboard import Switchboard

SUBSCRIBE_AT_ONCE: Final = 1000


class _Listening(Line):
    """The connection itself: sends what is asked, and hands on what it hears."""

    def __init__(
        self, connection: AbstractConnection, heard: Callable[[Any], bool], ended: Callable[[Exception], None]
    ) -> None:
        super().__init__(connection)
        self._heard = heard
        self._tell_ended = ended

    async def send(self, *command: bytes) -> None:
        if not self._is_ready:
            await self._ready()
        self._transport.write(pack_command(command))  # type: ignore[arg-type]

    def _received(self, answer: Any) -> bool:
        return self._heard(answer)

    def _has_ended(self, error: Exception) -> None:
        self._tell_ended(error)


class Signals:
    """Subscribes to the channels that the switchboard needs and hands on what arrives.

    It is open as long as the store is online, even if nobody listens: that it breaks is how a store that waits
    learns that Redis has gone.
    """

    def __init__(
        self,
        url: str,
        dial: Callable[[], Awaitable[AbstractConnection]],
        channels: Channels,
        switchboard: Switchboard,
        health: Health,
    ) -> None:
        self._url = url
        self._dial = dial
        self._channels = channels
        self._switchboard = switchboard
        self._health = health
        self._line: _Listening | None = None
        self._telling: asyncio.Task[None] | None = None
        self._confirmed: set[bytes] = set()
        self._unconfirmed: Counter[bytes] = Counter()
        self._waiting: dict[bytes, asyncio.Future[None]] = {}
        self._takers: dict[bytes, Callable[[bytes], bool]] = {}

    async def open(self) -> None:
        """Connect, if that is needed, and listen to everything that the switchboard needs."""
        if self._line is not None and self._line.is_open:
            return
        await self.close()
        self._line = _Listening(await self._dial(), self._hear, self._broken)
        try:
            await self._subscribe(self._needed())
            for channel in self._confirmed - set(self._needed()):
                await self.stop(channel)
        except BaseException:
            # Half of the subscriptions is none: the next attempt must begin anew.
            await self.close()
            raise
        # What happened while nobody listened cannot be known.
        self._switchboard.wake_all()

    async def close(self) -> None:
        if self._telling is not None:
            self._telling.cancel()
            await asyncio.gather(self._telling, return_exceptions=True)
            self._telling = None
        line, self._line = self._line, None
        if line is not None:
            await line.close()

    async def start(self, channel: bytes) -> None:
        """Return once Redis has confirmed that it sends us what is published on `channel`."""
        if channel not in self._confirmed:
            await self._subscribe([channel])

    async def stop(self, channel: bytes) -> None:
        self._confirmed.discard(channel)
        self._takers.pop(channel, None)
        self._waiting.pop(channel, None)
        await self._send(b"UNSUBSCRIBE", channel)

    def _needed(self) -> list[bytes]:
        logs = [self._channels.of_growth(log) for log in self._switchboard.watched_logs]
        waiters = [self._channels.of_waiter(token) for token in self._switchboard.expectant]
        return logs + waiters + [self._channels.of_signal(name) for name in self._switchboard.heard_signals]

    async def _subscribe(self, channels: list[bytes]) -> None:
        loop = asyncio.get_running_loop()
        new = [channel for channel in channels if channel not in self._waiting]
        self._waiting.update((channel, loop.create_future()) for channel in new)
        waiting = [self._waiting[channel] for channel in channels]
        for index in range(0, len(new), SUBSCRIBE_AT_ONCE):
            part = new[index : index + SUBSCRIBE_AT_ONCE]
            self._unconfirmed.update(part)
            await self._send(b"SUBSCRIBE", *part)
        for confirmation in waiting:
            # Others may wait for the same confirmation; who is cancelled must not take it from them.
            await asyncio.shield(confirmation)

    async def _send(self, *command: bytes) -> None:
        if self._line is None:
            raise StoreUnavailable(f"The connection to {self._url} has broken.")
        try:
            await self._line.send(*command)
        except DRIVER_ERRORS as error:
            raise translate(error, self._url) from error

    def _hear(self, answer: Any) -> bool:
        if isinstance(answer, Exception):
            self._fail(translate(answer, self._url))
            return False
        kind, channel, value = answer
        if kind == b"message":
            take = self._takers.get(channel) or self._taker_of(channel)
            return take(value)
        if kind == b"subscribe":
            self._confirm(channel)
        return False

    def _taker_of(self, channel: bytes) -> Callable[[bytes], bool]:
        """Return what takes the messages of a channel; remember it as long as the channel is subscribed to."""
        topic, name = self._channels.parse(channel)
        match topic:
            case Topic.HANDED:
                take: Callable[[bytes], bool] = partial(self._hand_over, name)
            case Topic.GROWTH:
                take = partial(self._wake, name)
            case Topic.SIGNAL:
                take = partial(self._deliver, name)
        if channel in self._confirmed:
            self._takers[channel] = take
        return take

    def _hand_over(self, token: str, value: bytes) -> bool:
        self._switchboard.hand_over(token, claimed_of(value))
        # Right behind it comes the wake-up for those who watch the log, and that can wait.
        return True

    def _wake(self, log: str, value: bytes) -> bool:
        self._switchboard.wake(log, PackedNews(value) if value else None)
        return False

    def _deliver(self, name: str, value: bytes) -> bool:
        self._switchboard.deliver(name, value)
        return False

    def _confirm(self, channel: bytes) -> None:
        self._unconfirmed[channel] -= 1
        # An earlier subscription that was ended since is confirmed first; only the last confirmation counts.
        if self._unconfirmed[channel] > 0:
            return
        del self._unconfirmed[channel]
        confirmation = self._waiting.pop(channel, None)
        if confirmation is not None:
            self._confirmed.add(channel)
            if not confirmation.done():
                confirmation.set_result(None)

    def _broken(self, error: Exception) -> None:
        unavailable = StoreUnavailable(str(translate(error, self._url)))
        self._confirmed.clear()
        self._unconfirmed.clear()
        self._fail(unavailable)
        # What we have closed ourselves is nobody's failure.
        if self._line is not None:
            self._telling = asyncio.create_task(self._tell(unavailable), name="onebus-redis-signals")

    async def _tell(self, unavailable: StoreUnavailable) -> None:
        # If the store is just being probed, it may be found in good health although we have heard otherwise.
        await self._health.wait_online()
        self._health.went_offline(unavailable)

    def _fail(self, reason: Exception) -> None:
        for confirmation in self._waiting.values():
            if not confirmation.done():
                confirmation.set_exception(reason)
                confirmation.exception()  # whoever waited for it may have been cancelled
        self._waiting.clear()
