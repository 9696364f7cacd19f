"""The queues of a bus over HTTP."""

from collections.abc import Coroutine
from typing import Any

from onebus.bus import Bus
from onebus.errors import BusError
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

    def serve(self, request: Request, send: Send) -> Coroutine[Any, Any, Answer | None]:
        if request.scope["type"] == "websocket":
            return _hang_up(send)
        if self._single.owns(request.path):
            return self._single.serve(request)
        return self._describe() if request.path == DESCRIPTION_PATH else self._named.serve(request)

    async def answer_to(self, request: Request, problem: Exception) -> Answer:
        if isinstance(problem, BusError) and self._single.owns(request.path):
            return self._single.answer_to(problem)
        return await super().answer_to(request, problem)

    async def _describe(self) -> Answer:
        return self._description

    async def close(self) -> None:
        """Answer whoever waits for a message."""
        await self._shelf.close()


async def _hang_up(send: Send) -> None:
    await send({"type": "websocket.close", "code": 1008, "reason": "There is no websocket here."})
