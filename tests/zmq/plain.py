"""A publisher and a consumer that speak as raintank-queue's do, over bare sockets."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import socketio
import zmq
import zmq.asyncio

from tests.eventually import eventually
from tests.zmq.addresses import Addresses


@asynccontextmanager
async def plain_publisher(addresses: Addresses) -> AsyncIterator["zmq.asyncio.Socket"]:
    context = zmq.asyncio.Context()
    push = context.socket(zmq.PUSH)
    push.connect(addresses.publisher)
    try:
        yield push
    finally:
        push.close(linger=1000)
        context.term()


class PlainConsumer:
    """Listens to the rooms that it is told, and says at once that it is ready."""

    def __init__(self, addresses: Addresses) -> None:
        self._addresses = addresses
        self._context = zmq.asyncio.Context()
        self._socket = self._context.socket(zmq.SUB)
        self._rooms: dict[tuple[str, str], list[str]] = {}
        self.io = socketio.AsyncClient(reconnection=False)
        self.io.on("rebalance", self._rebalanced)
        self.told: list[dict[str, Any]] = []
        self.errors: list[dict[str, Any]] = []
        self.io.on("error", self.errors.append)
        self.rooms_heard: list[str] = []
        self.messages: list[Any] = []
        self.answers = True
        """Whether it says that it is ready."""
        self._may_read = asyncio.Event()
        self._may_read.set()

    async def __aenter__(self) -> "PlainConsumer":
        self._socket.connect(self._addresses.consumer)
        await self.io.connect(self._addresses.management, transports=["websocket"])
        self._listening = asyncio.create_task(self._listen())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.io.disconnect()
        self._listening.cancel()
        await asyncio.gather(self._listening, return_exceptions=True)
        self._socket.close(linger=0)
        self._context.term()

    async def join(self, topic: str, group: str) -> None:
        """Join, and return when the broker has answered."""
        before = len(self.told)
        await self.io.emit("join", {"topic": topic, "group": group})

        async def answered() -> bool:
            return len(self.told) > before

        await eventually(answered)

    async def has(self, count: int) -> list[Any]:
        """Return the messages once there are so many."""

        async def there() -> bool:
            return len(self.messages) >= count

        await eventually(there)
        return self.messages

    def pause(self) -> None:
        """Stop reading, as a program does that hangs."""
        self._may_read.clear()

    def go_on(self) -> None:
        self._may_read.set()

    async def _rebalanced(self, told: dict[str, Any]) -> None:
        key = told["topic"], told["group"]
        for room in self._rooms.get(key, ()):
            self._socket.unsubscribe(room)
        self._rooms[key] = [f"{told['topic']}:{partition}" for partition in told["partitions"]]
        for room in self._rooms[key]:
            self._socket.subscribe(room)
        self.told.append(told)
        if self.answers:
            await self.io.emit("ready", told)

    async def _listen(self) -> None:
        while True:
            await self._may_read.wait()
            room, payload = await self._socket.recv_multipart()
            self.rooms_heard.append(room.decode())
            self.messages += json.loads(payload)


def array(topic: str, payload: Any, **partition: Any) -> bytes:
    """Return what a plain publisher sends."""
    return json.dumps({"topic": topic, "payload": payload, **partition}).encode()
