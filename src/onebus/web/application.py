"""The web application: which door answers what, and when the bus is connected and disconnected."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib.resources import files

from onebus.bus import Bus
from onebus.web.answers import Answer, error, page
from onebus.web.asgi import Receive, Scope, Send
from onebus.web.door import Door, answer_with
from onebus.web.feeds.door import FeedDoor
from onebus.web.feeds.settings import FeedSettings
from onebus.web.guard import Guard
from onebus.web.health import HealthCheck
from onebus.web.life import Life
from onebus.web.metrics import Metrics
from onebus.web.queues.door import QueueDoor
from onebus.web.queues.settings import QueueSettings
from onebus.web.request import Request
from onebus.web.scripts import ScriptDoor

_READING = ("GET", "HEAD")


def app(
    bus: Bus, *, feeds: FeedSettings | None = None, queues: QueueSettings | None = None, guard: Guard | None = None
) -> "Application":
    """Return an ASGI application that serves a bus, to everybody unless there is a guard."""
    return Application(bus, FeedDoor(bus, feeds), QueueDoor(bus, queues), guard)


class Application:
    """Serves a bus to the web, as an ASGI application.

    It connects the bus at its start and disconnects it at its end, unless the bus is connected already: then that is
    the business of whoever did so. So a bus that is mounted in another application, whose start and end it does not
    hear of, has to be connected there.
    """

    def __init__(self, bus: Bus, feeds: FeedDoor, queues: QueueDoor, guard: Guard | None = None) -> None:
        self._bus = bus
        self._guard = guard
        self._doors: Sequence[Door] = (feeds, queues, ScriptDoor())
        self._health = HealthCheck(bus)
        self._metrics = Metrics(bus, feeds)
        self._index = page(files("onebus.web").joinpath("pages", "index.html").read_text("utf-8"))
        self._pages: Mapping[str, Callable[[], Awaitable[Answer]]] = {
            "/": self._show_index,
            "/healthz": self._health.answer,
            "/metrics": self._metrics.answer,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await Life(self._bus, look=self._begin, close=self.close).live(scope, receive, send)
            return
        request = Request(scope, receive)
        refusal = self._guard.refusal(request) if self._guard is not None else None
        door = self._door_of(request.path)
        if refusal is not None:
            await answer_with(refusal, request, send)
        elif door is not None:
            await door.enter(request, send)
        else:
            await answer_with(await self._read(request.method, request.path), request, send)

    async def _begin(self) -> None:
        await self._health.look()
        self._metrics.start()

    async def close(self) -> None:
        """Answer whoever is being held, because the server is about to stop; it may be called twice."""
        self._metrics.stop()
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
