"""A real web server around the application, and a client for it."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

import uvicorn

from onebus import Bus
from onebus.web import FeedSettings
from onebus.web.application import Application
from onebus.web.asgi import App
from onebus.web.feeds.door import FeedDoor
from onebus.web.queues.door import QueueDoor
from onebus.web.queues.settings import QueueSettings
from onebus.web.wire.connection import Connection
from tests.eventually import eventually
from tests.services.port import free_port
from tests.web.exchange import Reply, Response, exchange

Channels = Mapping[str, object]
"""Channels, and the id that was read last in each of them; beside them the words of the protocol."""


class WebServer:
    """Serves an application on a free port."""

    def __init__(self, port: int) -> None:
        self.port = port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def exchange(self, method: str, path: str, **options: Any) -> AbstractAsyncContextManager[Reply]:
        return exchange(self.port, method, path, **options)

    async def request(self, method: str, path: str, **options: Any) -> Response:
        options["headers"] = {"Connection": "close", **options.get("headers", {})}
        async with self.exchange(method, path, **options) as reply:
            return await reply.whole()

    async def get(self, path: str, **options: Any) -> Response:
        return await self.request("GET", path, **options)

    async def post_json(self, path: str, content: object, **options: Any) -> Response:
        headers = {"Content-Type": "application/json", **options.pop("headers", {})}
        return await self.request("POST", path, body=json.dumps(content).encode(), headers=headers, **options)

    # Feeds

    def poll(
        self, channels: Channels, *, client: str = "", path: str = "/message-bus/", query: str = "", **options: Any
    ) -> AbstractAsyncContextManager[Reply]:
        """Ask for messages; the answer may be held."""
        body = urlencode(channels).encode()
        path = f"{path}{client or uuid4().hex}/poll{query}"
        headers = {"Content-Type": "application/x-www-form-urlencoded", **options.pop("headers", {})}
        return self.exchange("POST", path, body=body, headers=headers, **options)

    def long_poll(self, channels: Channels, **options: Any) -> AbstractAsyncContextManager[Reply]:
        """Ask for messages that do not come as a stream."""
        return self.poll(channels, headers={"Dont-Chunk": "true", **options.pop("headers", {})}, **options)

    async def look(self, channels: Channels, **options: Any) -> list[Any]:
        """Return what there is now."""
        async with self.poll(channels, query="?dlp=t", **options) as reply:
            response = await reply.whole()
        assert response.status == 200, response
        messages: list[Any] = response.json
        return messages

    async def look_for_data(self, channels: Channels, **options: Any) -> list[Any]:
        return [message["data"] for message in await self.look(channels, **options)]


class FeedServer(WebServer):
    """Serves the feeds of a bus."""

    def __init__(self, port: int, door: FeedDoor) -> None:
        super().__init__(port)
        self.door = door

    async def holds(self, count: int) -> None:
        """Return once so many clients are held, and each knows where it stands."""

        async def are_held() -> bool:
            listeners = self.door.held.listeners()
            return len(listeners) == count and all(listener.positions for listener in listeners)

        await eventually(are_held)


@asynccontextmanager
async def running_server(
    app: App,
    close: Callable[[], Awaitable[None]],
    *,
    http: type[asyncio.Protocol] = Connection,
    keep_alive_seconds: int = 5,
) -> AsyncIterator[int]:
    """Run an application and give its port; ``close`` lets everybody go who is held at the end."""
    port = free_port()
    server = uvicorn.Server(
        uvicorn.Config(app, http=http, port=port, log_level="warning", timeout_keep_alive=keep_alive_seconds)
    )
    running = asyncio.create_task(server.serve())

    async def is_started() -> bool:
        return server.started or running.done()

    try:
        await eventually(is_started)
        yield port
    finally:
        await close()
        server.should_exit = True
        await running


@asynccontextmanager
async def serving(
    bus: Bus,
    settings: FeedSettings | None = None,
    *,
    queues: QueueSettings | None = None,
    http: type[asyncio.Protocol] = Connection,
) -> AsyncIterator[FeedServer]:
    door = FeedDoor(bus, settings)
    application = Application(bus, door, QueueDoor(bus, queues))
    async with running_server(application, application.close, http=http) as port:
        yield FeedServer(port, door)
