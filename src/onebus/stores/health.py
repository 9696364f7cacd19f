"""Whether a store can be reached, and the patient attempts to reach it again."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Final

from onebus.errors import BusError, StoreUnavailable

_log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS: Final = 0.05
LONGEST_PAUSE_SECONDS: Final = 2.0

Listener = Callable[[bool], None]


class Health:
    """Knows if a store is online, tells listeners when that changes, and probes while it is not."""

    def __init__(self, probe: Callable[[], Awaitable[None]], deadline_seconds: float) -> None:
        self._probe = probe
        self._deadline_seconds = deadline_seconds
        self._online = asyncio.Event()
        self._listeners: list[Listener] = []
        self._reconnecting: asyncio.Task[None] | None = None
        self._running = False
        self.reason = ""
        """Why the store is offline; empty while it is online."""

    @property
    def is_online(self) -> bool:
        return self._online.is_set()

    def on_change(self, listener: Listener) -> None:
        """Call `listener` with True when the store comes online and with False when it goes offline."""
        self._listeners.append(listener)

    def off_change(self, listener: Listener) -> None:
        """Call `listener` no more."""
        if listener in self._listeners:
            self._listeners.remove(listener)

    async def wait_online(self) -> None:
        """Return once the store is online; the caller sets the deadline."""
        if not self._online.is_set():
            await self._online.wait()

    def start(self) -> None:
        self._running = True
        self._went_online()

    async def stop(self) -> None:
        self._running = False
        if self._reconnecting is not None:
            self._reconnecting.cancel()
            await asyncio.gather(self._reconnecting, return_exceptions=True)
            self._reconnecting = None
        if self.is_online:
            self._online.clear()
            self._tell(False)

    def went_offline(self, error: StoreUnavailable) -> None:
        """Note that the store cannot be reached, and begin to probe it."""
        if not self._running or not self.is_online:
            return
        self.reason = str(error)
        self._online.clear()
        self._tell(False)
        self._reconnecting = asyncio.create_task(self._reconnect(), name="onebus-reconnect")

    async def _reconnect(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        while True:
            # Jitter keeps a thousand clients from knocking at a restarted server all at once.
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
            try:
                async with asyncio.timeout(self._deadline_seconds):
                    await self._probe()
            except BusError as error:
                self.reason = str(error)
            except TimeoutError:
                continue
            except Exception as error:
                _log.exception("probing a store failed in an unexpected way")
                self.reason = repr(error)
            else:
                self._went_online()
                return

    def _went_online(self) -> None:
        self.reason = ""
        self._online.set()
        self._tell(True)

    def _tell(self, online: bool) -> None:
        for listener in tuple(self._listeners):
            try:
                listener(online)
            except Exception:
                _log.exception("a listener of a store's health failed")
