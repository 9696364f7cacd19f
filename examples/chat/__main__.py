"""A chat for the browser: several people, several rooms, who is there, and what was said before you came.

python examples/chat                       http://127.0.0.1:8080, in memory
python examples/chat sqlite:///chat.db     remembers what was said; any store URL will do

Open it in two windows. There are no passwords: everybody is who they say they are.
"""

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import msgspec
import uvicorn

from onebus import Bus
from onebus.web import Answer, Middleware, Request
from onebus.web.answers import error, json
from onebus.web.asgi import Receive, Scope, Send

HERE = Path(__file__).parent
FILES = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/chat.css": ("chat.css", "text/css; charset=utf-8"),
    "/chat.js": ("chat.js", "text/javascript; charset=utf-8"),
}
HEADERS = {
    "cache-control": "no-cache",
    "content-security-policy": "default-src 'self'; img-src 'self' data:",
    "x-content-type-options": "nosniff",
}
FIRST_ROOMS = ("Lobby", "Kitchen", "Garden")
PATIENCE_SECONDS = 30.0
"""Pages say now and then who is there; who has not been named for so long has left."""

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=30, pattern=r"^[\w .'-]+$")]
Text = Annotated[str, msgspec.Meta(min_length=1, max_length=2000)]


class Visit(msgspec.Struct, frozen=True):
    """Somebody in a room."""

    room: Name
    user: Name


class Remark(Visit, frozen=True):
    """Somebody says something."""

    text: Text


class House:
    """All rooms. What is said in one is published on its channel, and who is there on another one."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._people: dict[str, dict[str, float]] = {}
        """Who is in each room, and when they were last seen there."""

    async def open(self) -> None:
        """Remember the rooms that there are."""
        known = [message.data for message in await self._bus.backlog("/rooms")]
        self._people = {room: {} for room in known}
        for room in FIRST_ROOMS:
            await self._add(room)

    async def say(self, remark: Remark) -> None:
        await self.enter(remark)
        said = {"user": remark.user, "text": remark.text, "time": time.time()}
        await self._bus.publish(f"/rooms/{remark.room}", said)

    async def enter(self, visit: Visit) -> None:
        await self._add(visit.room)
        people = self._people[visit.room]
        is_new = visit.user not in people
        people[visit.user] = time.monotonic()
        if is_new:
            await self._tell(visit.room)

    async def leave(self, visit: Visit) -> None:
        if self._people.get(visit.room, {}).pop(visit.user, None) is not None:
            await self._tell(visit.room)

    async def watch(self) -> None:
        """Show those out who went without a word."""
        while True:
            await asyncio.sleep(1)
            latest = time.monotonic() - PATIENCE_SECONDS
            for room, people in self._people.items():
                for user in [user for user, seen in people.items() if seen < latest]:
                    await self.leave(Visit(room, user))

    async def _add(self, room: str) -> None:
        if room not in self._people:
            self._people[room] = {}
            await self._bus.publish("/rooms", room)

    async def _tell(self, room: str) -> None:
        # Whoever comes later wants to know only who is there then.
        await self._bus.publish(f"/rooms/{room}/people", sorted(self._people[room]), max_backlog_size=1)


class Chat:
    """The web application: the page, and what it posts."""

    def __init__(self, house: House) -> None:
        self._files = {
            path: Answer(200, kind, (HERE / name).read_bytes(), HEADERS) for path, (name, kind) in FILES.items()
        }
        self._acts: Mapping[str, Callable[[bytes], Awaitable[None]]] = {
            "/say": lambda body: house.say(msgspec.json.decode(body, type=Remark)),
            "/enter": lambda body: house.enter(msgspec.json.decode(body, type=Visit)),
            "/leave": lambda body: house.leave(msgspec.json.decode(body, type=Visit)),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await (await self._answer(Request(scope, receive))).send(send)

    async def _answer(self, request: Request) -> Answer:
        if request.method == "GET":
            return self._files.get(request.path) or error(404, "not_found", "There is nothing here.")
        act = self._acts.get(request.path)
        # Pages of other sites cannot send this type without asking first.
        if act is None or request.headers.get("content-type") != "application/json":
            return error(404, "not_found", "There is nothing here.")
        try:
            await act(await request.body(max_bytes=20_000))
        except msgspec.MsgspecError as problem:
            return error(400, "invalid_argument", str(problem))
        return json({})


async def main(url: str, port: int) -> None:
    async with Bus(url) as bus:
        house = House(bus)
        await house.open()
        chat = Middleware(Chat(house), bus)
        config = uvicorn.Config(chat, port=port, lifespan="off", log_level="warning", timeout_graceful_shutdown=1)
        watching = asyncio.create_task(house.watch())
        print(f"Chat at http://127.0.0.1:{port}; Ctrl-C ends.", flush=True)
        await uvicorn.Server(config).serve()
        watching.cancel()


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("store", nargs="?", default="memory://chat", help="where messages are kept")
    arguments.add_argument("--port", type=int, default=8080)
    given = arguments.parse_args()
    with suppress(KeyboardInterrupt):
        asyncio.run(main(given.store, given.port))
