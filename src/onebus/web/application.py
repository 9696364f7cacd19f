"""The web application: which door answers what, and when the bus is connected and disconnected."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib.resources import files

from onebus.bus import Bus
from onebus.errors import BusError
from onebus.web.answers import Answer, error, failure, page
from onebus.web.asgi import Message, Receive, Scope, Send
from onebus.web.door import Door
from onebus.web.health import HealthCheck
from onebus.web.request import ClientGone, Request

_READING = ("GET", "HEAD")

_log = logging.getLogger("onebus")


def app(bus: Bus) -> "Application":
    """Return an ASGI application that serves a bus."""
    return Application(bus)


class Application:
    """Serves a bus to the web, as an ASGI application.

    It connects the bus at its start and disconnects it at its end, unless the bus is connected already: then that is
    the business of whoever did so. So a bus that is mounted in another application, whose start and end it does not
    hear of, has to be connected there.
    """

    def __init__(self, bus: Bus, doors: Sequence[Door] = ()) -> None:
        self._bus = bus
        self._doors = doors
        self._health = HealthCheck(bus)
        self._index = page(files("onebus.web").joinpath("pages", "index.html").read_text("utf-8"))
        self._pages: Mapping[str, Callable[[], Awaitable[Answer]]] = {
            "/": self._show_index,
            "/healthz": self._health.answer,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        request = Request(scope, receive)
        door = self._door_of(request.path)
        if door is not None:
            await _serve(door, request, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": "There is no websocket here."})
        else:
            answer = await self._read(request.method, request.path)
            await answer.send(send, with_body=request.method != "HEAD")

    async def close(self) -> None:
        """Answer whoever is being held, because the server is about to stop; it may be called twice."""
        for door in self._doors:
            await door.close()

    def _door_of(self, path: str) -> Door | None:
        for door in self._doors:
            if door.owns(path):
                return door
        return None

    async def _read(self, method: str, path: str) -> Answer:
        show = self._pages.get(path)
        if show is None:
            return error(404, "not_found", f"There is nothing at {path}.")
        if method not in _READING:
            text = f"{path} can only be read."
            return error(405, "method_not_allowed", text, headers={"allow": ", ".join(_READING)})
        return await show()

    async def _show_index(self) -> Answer:
        return self._index

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        connects = not self._bus.is_connected
        try:
            if connects:
                await self._bus.connect()
            await self._health.look()
        except BusError as problem:
            if connects:
                await self._bus.disconnect()
            await send({"type": "lifespan.startup.failed", "message": f"error[{problem.code}]: {problem}"})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.close()
        if connects:
            await self._bus.disconnect()
        await send({"type": "lifespan.shutdown.complete"})


async def _serve(door: Door, request: Request, send: Send) -> None:
    """Let a door answer a request, and turn what it raises into an answer as long as it has not begun to answer."""
    has_begun = False

    async def watched(message: Message) -> None:
        nonlocal has_begun
        has_begun = True
        await send(message)

    try:
        await door.serve(request, watched)
    except ClientGone:
        return
    except BusError as problem:
        if has_begun or request.scope["type"] != "http":
            raise
        _log.debug("%s %s failed: %s", request.method, request.path, problem)
        await failure(problem).send(send)
