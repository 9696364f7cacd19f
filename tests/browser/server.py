"""A web server in a process of its own, which can be killed, and its messages wiped."""

import asyncio
import http.client
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.services import Server

_PROGRAM = Path(__file__).with_name("program.py")


class WebServer(Server):
    """Serves a bus on a SQLite file."""

    def __init__(self, *options: str, secret: str = "") -> None:
        super().__init__()
        self._options = [*options, "--secret", secret]
        self._headers = {"content-type": "application/json", "authorization": f"Bearer {secret}"}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def command(self) -> Sequence[str]:
        store = f"sqlite:///{self.folder}/bus.db"
        return [sys.executable, str(_PROGRAM), "--port", str(self.port), "--store", store, *self._options]

    def is_ready(self) -> bool:
        try:
            return self._request("GET", "/healthz") is not None
        except OSError:
            return False

    def wipe(self) -> None:
        """Forget everything; the server must not run."""
        for file in self.folder.glob("bus.db*"):
            if file.is_file():
                file.unlink()

    async def come_back(self) -> None:
        self.start()
        await asyncio.to_thread(self.wait_ready)

    async def publish(self, channel: str, *data: object) -> None:
        messages = [{"channel": channel, "data": one} for one in data]
        await asyncio.to_thread(self._request, "POST", "/message-bus/broadcast", messages)

    async def held(self) -> dict[str, int]:
        """How many clients the server holds, by transport."""
        held: dict[str, int] = (await self._diagnostics())["held"]
        return held

    async def followed(self) -> set[str]:
        """The channels that clients follow at the moment."""
        return {channel for client in (await self._diagnostics())["clients"] for channel in client["channels"]}

    async def _diagnostics(self) -> Any:
        return await asyncio.to_thread(self._request, "GET", "/message-bus/_diagnostics")

    def _request(self, method: str, path: str, content: object = None) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            body = None if content is None else json.dumps(content)
            connection.request(method, path, body, self._headers)
            response = connection.getresponse()
            answer = json.loads(response.read())
        finally:
            connection.close()
        assert response.status == 200, answer
        return answer
