"""A real web server around the application, and a client for it."""

import asyncio
import http.client
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import uvicorn

from onebus import Bus
from onebus.web import app
from tests.eventually import eventually
from tests.services.port import free_port


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class WebServer:
    """Serves one bus on a free port."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def get(self, path: str) -> Response:
        return await self.request("GET", path)

    async def request(self, method: str, path: str, headers: Mapping[str, str] | None = None) -> Response:
        return await asyncio.to_thread(self._request, method, path, headers or {})

    def _request(self, method: str, path: str, headers: Mapping[str, str]) -> Response:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        try:
            connection.request(method, path, headers=headers)
            response = connection.getresponse()
            return Response(response.status, dict(response.getheaders()), response.read())
        finally:
            connection.close()


@asynccontextmanager
async def serving(bus: Bus) -> AsyncIterator[WebServer]:
    port = free_port()
    server = uvicorn.Server(uvicorn.Config(app(bus), port=port, lifespan="on", log_level="warning"))
    running = asyncio.create_task(server.serve())

    async def is_started() -> bool:
        return server.started or running.done()

    try:
        await eventually(is_started)
        yield WebServer(port)
    finally:
        server.should_exit = True
        await running
