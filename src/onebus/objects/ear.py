"""Listens to a signal in the background, for as long as somebody wants to hear it."""

import asyncio
from collections.abc import Awaitable, Callable

from onebus.errors import SignalsMissed, StoreClosed
from onebus.events import Events
from onebus.stores.base import Store

Hear = Callable[[bytes], Awaitable[None]]


class Ear:
    """Hands each payload of a signal to a function, one after the other."""

    def __init__(self, signal: str, hear: Hear, events: Events) -> None:
        self._signal = signal
        self._hear = hear
        self._events = events
        self._listening: asyncio.Task[None] | None = None

    @property
    def is_open(self) -> bool:
        return self._listening is not None and not self._listening.done()

    async def open(self, store: Store) -> None:
        """Begin to listen; what is signalled after this returns is heard. Opening an open ear does nothing."""
        if self.is_open:
            return
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._listening = asyncio.create_task(self._listen(store, ready), name=f"onebus-ear {self._signal}")
        try:
            await ready
        except BaseException:
            await self.close()
            raise

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
                ready.set_result(None)
                while self._listening is asyncio.current_task():
                    try:
                        await self._hear(await anext(payloads))
                    except SignalsMissed as error:
                        await self._events.emit("error", error)
        except StoreClosed:
            return
        except Exception as error:
            if ready.done():
                await self._events.emit("error", error)
            else:
                ready.set_exception(error)
