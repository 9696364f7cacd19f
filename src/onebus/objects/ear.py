"""Listens to a signal in the background, for as long as somebody wants to hear it."""

import asyncio
from collections.abc import Awaitable, Callable

from onebus.errors import SignalsMissed, StoreClosed
from onebus.events import Events
from onebus.stores.base import Store
from onebus.stores.switchboard import Subscription

Hear = Callable[[bytes], Awaitable[None]]


class Ear:
    """Hands each payload of a signal to a function, one after the other."""

    def __init__(self, signal: str, hear: Hear, events: Events) -> None:
        self._signal = signal
        self._hear = hear
        self._events = events
        self._listening: asyncio.Task[None] | None = None
        self._opening = asyncio.Lock()

    @property
    def is_open(self) -> bool:
        return self._listening is not None and not self._listening.done()

    async def open(self, store: Store) -> bool:
        """Begin to listen, and return whether the ear was closed; what is signalled after this returns is heard.

        Raises:
            StoreClosed: the store, or this ear, was closed meanwhile.
        """
        async with self._opening:
            if self.is_open:
                return False
            ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._listening = asyncio.create_task(self._listen(store, ready), name=f"onebus-ear {self._signal}")
            self._listening.add_done_callback(lambda _: self._give_up(ready))
            try:
                await ready
            except BaseException:
                await self.close()
                raise
            return True

    async def close(self) -> None:
        """Hear nothing more. May be called from within what hears."""
        if self._listening is not None:
            listening, self._listening = self._listening, None
            if listening is not asyncio.current_task():
                listening.cancel()
                await asyncio.gather(listening, return_exceptions=True)

    async def _listen(self, store: Store, ready: asyncio.Future[None]) -> None:
        try:
            async with store.listen(self._signal) as payloads:
                if not ready.done():
                    ready.set_result(None)
                while self._listening is asyncio.current_task():
                    await self._hear_next(payloads)
        except Exception as error:
            if not ready.done():
                ready.set_exception(error)
            elif not isinstance(error, StoreClosed):
                await self._events.emit("error", error)

    def _give_up(self, ready: asyncio.Future[None]) -> None:
        if not ready.done():
            ready.set_exception(StoreClosed(f"Listening to {self._signal!r} was ended before it began."))

    async def _hear_next(self, payloads: Subscription) -> None:
        try:
            payload = await anext(payloads)
        except SignalsMissed as error:
            await self._events.emit("error", error)
            return
        try:
            await self._hear(payload)
        except Exception as error:
            # One payload that cannot be understood must not make this ear deaf.
            await self._events.emit("error", error)
