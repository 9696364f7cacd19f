"""The start and the end of a web server, and what has to happen then: a bus is connected for as long as it runs."""

from collections.abc import Awaitable, Callable

from onebus.bus import Bus
from onebus.errors import BusError
from onebus.web.asgi import App, Message, Receive, Scope, Send

_ENDS = ("lifespan.startup.failed", "lifespan.shutdown.complete", "lifespan.shutdown.failed")


class Life:
    """Connects a bus at the start and disconnects it at the end, unless it is connected already."""

    def __init__(
        self, bus: Bus, *, look: Callable[[], Awaitable[None]] | None = None, close: Callable[[], Awaitable[None]]
    ) -> None:
        self._bus = bus
        self._look = look
        self._close = close
        self._connects = False
        self._was_answered = False

    async def live(self, scope: Scope, receive: Receive, send: Send, inner: App | None = None) -> None:
        """Answer the web server from its start to its end, around another application that may want to hear of both."""
        startup = [await receive()]
        try:
            await self._begin()
        except BusError as problem:
            await send({"type": "lifespan.startup.failed", "message": f"error[{problem.code}]: {problem}"})
            return

        async def received() -> Message:
            return startup.pop() if startup else await receive()

        async def sent(message: Message) -> None:
            self._was_answered = True
            if message["type"] in _ENDS:
                await self._end()
            await send(message)

        if inner is not None:
            try:
                await inner(scope, received, sent)
            except Exception:
                # Whoever fails before it has answered says in this way that it does not care for starts and ends.
                if self._was_answered:
                    await self._end()
                    raise
            if self._was_answered:
                await self._end()
                return
        await sent({"type": "lifespan.startup.complete"})
        await receive()
        await sent({"type": "lifespan.shutdown.complete"})

    async def _begin(self) -> None:
        self._connects = not self._bus.is_connected
        if self._connects:
            await self._bus.connect()
        if self._look is not None:
            await self._look()

    async def _end(self) -> None:
        # It may be called twice.
        await self._close()
        if self._connects:
            self._connects = False
            await self._bus.disconnect()
