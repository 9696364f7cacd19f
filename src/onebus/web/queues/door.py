"""The queues of a bus over HTTP."""

from onebus.bus import Bus
from onebus.web.answers import Answer
from onebus.web.asgi import Send
from onebus.web.door import Door
from onebus.web.queues.description import description
from onebus.web.queues.named import NamedQueues
from onebus.web.queues.settings import QueueSettings
from onebus.web.queues.shelf import QueueShelf
from onebus.web.queues.single import SingleQueue
from onebus.web.request import Request

DESCRIPTION_PATH = "/openapi.json"


class QueueDoor(Door):
    """Answers ``/message/…``, ``/info``, ``/queues…`` and ``/openapi.json``."""

    def __init__(self, bus: Bus, settings: QueueSettings | None = None) -> None:
        settings = settings or QueueSettings()
        self._shelf = QueueShelf(bus, settings)
        self._single = SingleQueue(self._shelf, settings)
        self._named = NamedQueues(bus, self._shelf, settings)
        self._description = description(settings)

    def owns(self, path: str) -> bool:
        return self._single.owns(path) or self._named.owns(path) or path == DESCRIPTION_PATH

    async def serve(self, request: Request, send: Send) -> Answer | None:
        path = request.path
        if request.scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": "There is no websocket here."})
            return None
        if self._named.owns(path):
            return await self._named.serve(request)
        return self._description if path == DESCRIPTION_PATH else await self._single.serve(request)

    async def close(self) -> None:
        """Answer whoever waits for a message."""
        await self._shelf.close()
