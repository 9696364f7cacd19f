"""The feeds of a bus in front of another ASGI application."""

from onebus.bus import Bus
from onebus.web.asgi import App, Receive, Scope, Send
from onebus.web.feeds.door import FeedDoor
from onebus.web.feeds.settings import FeedSettings
from onebus.web.life import Life
from onebus.web.request import Request
from onebus.web.scripts import ScriptDoor


class Middleware:
    """Answers everything below ``message-bus/``, and leaves the rest to the application that it stands in front of.

    The client for browsers, ``onebus.js``, it serves as well.

    It connects the bus before the application starts and disconnects it after its end, unless the bus is connected
    already. An application that does not know of its start and end, as Django's, can be used all the same.
    """

    def __init__(self, app: App, bus: Bus, settings: FeedSettings | None = None) -> None:
        self._app = app
        self._bus = bus
        self.door = FeedDoor(bus, settings)
        self._scripts = ScriptDoor(settings.base_route if settings else "/")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await Life(self._bus, close=self.door.close).live(scope, receive, send, self._app)
            return
        request = Request(scope, receive)
        if self.door.owns(request.path):
            await self.door.enter(request, send)
        elif scope["type"] == "http" and self._scripts.owns(request.path):
            await self._scripts.enter(request, send)
        else:
            await self._app(scope, receive, send)
