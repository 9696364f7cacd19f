"""The web application: which path answers with what, and when the store is opened and closed."""

from collections.abc import Awaitable, Callable, Mapping
from importlib.resources import files

from onebus.errors import BusError
from onebus.stores import Store
from onebus.web.answers import Answer, error, page
from onebus.web.asgi import App, Receive, Scope, Send
from onebus.web.health import HealthCheck

_READING = ("GET", "HEAD")


def app(store: Store) -> App:
    """Return an ASGI application over a store, which it opens at its start and closes at its end."""
    return Application(store)


class Application:
    """Serves ``/`` and ``/healthz``, and nothing else yet."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._health = HealthCheck(store)
        self._index = page(files("onebus.web").joinpath("pages", "index.html").read_text("utf-8"))
        self._answers: Mapping[str, Callable[[], Awaitable[Answer]]] = {
            "/": self._show_index,
            "/healthz": self._health.answer,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        match scope["type"]:
            case "lifespan":
                await self._live(receive, send)
            case "http":
                answer = await self._answer(scope["method"], scope["path"])
                await answer.send(send, with_body=scope["method"] != "HEAD")
            case "websocket":
                await send({"type": "websocket.close", "code": 1008, "reason": "There is no websocket here."})

    async def _answer(self, method: str, path: str) -> Answer:
        answer = self._answers.get(path)
        if answer is None:
            return error(404, "not_found", f"There is nothing at {path}.")
        if method not in _READING:
            text = f"{path} can only be read."
            return error(405, "method_not_allowed", text, headers={"allow": ", ".join(_READING)})
        return await answer()

    async def _show_index(self) -> Answer:
        return self._index

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self._store.open()
            await self._health.look()
        except BusError as failure:
            await self._store.close()
            await send({"type": "lifespan.startup.failed", "message": f"error[{failure.code}]: {failure}"})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self._store.close()
        await send({"type": "lifespan.shutdown.complete"})
