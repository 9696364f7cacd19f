"""A consumer that acknowledges what it gets."""

import asyncio
import logging
from typing import Any, Final, Self
from uuid import uuid4

import msgspec
import socketio
import zmq

from onebus.errors import ServerUnavailable
from onebus.events import Emitter
from onebus.log.batch import Kind
from onebus.payload import unpack
from onebus.zmq.addresses import CONSUMER_SOCKET_ADDR, MGMT_URL
from onebus.zmq.burst import BurstSocket
from onebus.zmq.curve import unlock
from onebus.zmq.frames import Header

_log = logging.getLogger("onebus")

RECONNECT_SECONDS: Final = 0.25
NO_INBOX: Final = ""

GroupKey = tuple[str, str]
"""A topic and a group."""


class Consumer(Emitter):
    """A member of groups of a broker. Use it in ``async with``. ``secret`` and ``open_sockets`` are the broker's.

    Events: ``connect``, ``disconnect``, ``ready`` (what the broker said: topic, group, partitions, generation),
    ``message`` (topic, partition, messages), ``error`` (error).

    A batch is acknowledged when the handlers of ``message`` have returned; one at a time, so nothing overtakes
    anything. A handler that fails is reported as ``error``, and its batch counts as done.

    Delivery: at least once; what was not acknowledged when the consumer or the broker died comes again. Order: per
    partition, also when it moves: the old owner ends its batch before the new one gets the next.
    """

    def __init__(
        self,
        mgmt_url: str = MGMT_URL,
        consumer_socket_addr: str = CONSUMER_SOCKET_ADDR,
        *,
        secret: str = "",
        open_sockets: bool = False,
    ) -> None:
        super().__init__()
        self._url = mgmt_url
        self._address = consumer_socket_addr
        self._secret = secret
        self._socket_secret = "" if open_sockets else secret
        self._groups: dict[GroupKey, None] = {}
        self._io: socketio.AsyncClient | None = None
        self._inbox = NO_INBOX
        self._told: dict[GroupKey, dict[str, Any]] = {}
        self._done: dict[tuple[str, str, int], int] = {}
        """The sequence of the last batch of each partition that was handled, while the connection lasts."""
        self._handling = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def assignment(self) -> dict[GroupKey, list[int]]:
        """The partitions that this consumer has, for each topic and group."""
        return {key: list(told["partitions"]) for key, told in self._told.items()}

    # Life

    async def __aenter__(self) -> Self:
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.SUB)
        self._line = BurstSocket(self._socket)
        if self._socket_secret:
            unlock(self._socket, self._socket_secret)
        self._socket.connect(self._address)
        self._tasks = [
            asyncio.create_task(self._stay_connected(), name="onebus-consumer-management"),
            asyncio.create_task(self._listen(), name="onebus-consumer"),
        ]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Leave all groups; what is not acknowledged goes to others. May be called twice, and by a handler."""
        tasks, self._tasks = self._tasks, []
        if not tasks:
            return
        others = [task for task in tasks if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        self._line.close()
        self._context.destroy(linger=0)

    async def join(self, topic: str, group: str) -> None:
        """Become a member of a group, now and whenever the broker comes back; ``ready`` tells which partitions follow.

        Joining twice does nothing.
        """
        if (topic, group) not in self._groups:
            self._groups[topic, group] = None
            await self._say("join", {"topic": topic, "group": group, "inbox": self._inbox})

    # The management connection

    async def _stay_connected(self) -> None:
        complaint = ""
        while True:
            ended = asyncio.Event()
            io = self._client(ended)
            try:
                await io.connect(self._url, auth={"token": self._secret}, transports=["websocket"])
                complaint = ""
                await ended.wait()
            except socketio.exceptions.ConnectionError as error:
                if str(error) != complaint:
                    complaint = str(error)
                    await self.events.emit("error", ServerUnavailable(f"{self._url}: {error}"))
            finally:
                self._io = None
                await io.shutdown()
            await asyncio.sleep(RECONNECT_SECONDS)

    def _client(self, ended: asyncio.Event) -> "socketio.AsyncClient":
        io = socketio.AsyncClient(reconnection=False)

        async def connected() -> None:
            self._io = io
            await self._begin()

        async def disconnected(*_: object) -> None:
            ended.set()
            if self._io is io:
                self._io = None
                self._told.clear()
                await self.events.emit("disconnect")

        async def rebalanced(told: dict[str, Any]) -> None:
            if self._io is io:
                await self._rebalance(told)

        async def failed(error: dict[str, Any]) -> None:
            await self.events.emit("error", ServerUnavailable(str(error.get("message"))))

        io.on("connect", connected)
        io.on("disconnect", disconnected)
        io.on("rebalance", rebalanced)
        io.on("error", failed)
        return io

    async def _begin(self) -> None:
        """Open an inbox that only this connection has, so that nothing of an older one can be mistaken for new."""
        if self._inbox:
            self._socket.unsubscribe(self._inbox)
        self._inbox = uuid4().hex
        self._socket.subscribe(self._inbox)
        self._told.clear()
        self._done.clear()
        for topic, group in list(self._groups):
            await self._say("join", {"topic": topic, "group": group, "inbox": self._inbox})
        await self.events.emit("connect")

    async def _rebalance(self, told: dict[str, Any]) -> None:
        key = told["topic"], told["group"]
        self._told[key] = told
        async with self._handling:
            # What is being handled is done by now, and nothing of what was taken away is begun any more.
            if self._told.get(key) is not told:
                return
            await self._say("ready", told)
        await self.events.emit("ready", told)

    async def _say(self, event: str, value: dict[str, Any]) -> None:
        if self._io is not None:
            try:
                await self._io.emit(event, value)
            except socketio.exceptions.SocketIOError as error:
                # The broker hears it, or something newer, after the next connect.
                _log.debug("%s was not said: %s", event, error)

    # Messages

    async def _listen(self) -> None:
        while self._tasks:
            for inbox, header, payload in await self._line.receive():
                if inbox.decode() == self._inbox:
                    async with self._handling:
                        await self._handle(msgspec.json.decode(header, type=Header), payload)

    async def _handle(self, header: Header, payload: bytes) -> None:
        told = self._told.get((header.topic, header.group))
        if told is None or header.partition not in told["partitions"]:
            return
        place = header.topic, header.group, header.partition
        done = self._done.get(place, 0)
        if header.previous > done:
            # One before it was lost on the way; the broker sends both again.
            return
        if header.sequence > done:
            inbox = self._inbox
            await self.events.emit("message", header.topic, header.partition, unpack(payload, Kind.JSON))
            if inbox != self._inbox:
                # The broker sends it again, because it never heard that it is done.
                return
            self._done[place] = header.sequence
        await self._say("ack", msgspec.structs.asdict(header))
