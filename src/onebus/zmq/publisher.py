"""A publisher that knows what is stored."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, Self, overload
from uuid import uuid4

import msgspec
import zmq

from onebus.errors import InvalidArgument, NotConnected, PayloadTooLarge, RequestFailed
from onebus.payload import pack_json
from onebus.zmq.addresses import PUBLISHER_SOCKET_ADDR, receipt_address
from onebus.zmq.burst import BurstSocket
from onebus.zmq.curve import unlock
from onebus.zmq.frames import MAX_FRAME_BYTES, Refusal

MAX_IN_FLIGHT: Final = 1000
"""How many sends wait for their receipt; more of them wait for their turn."""
RECONNECT_SECONDS: Final = 0.1
HEARTBEAT_MS: Final = 1000
SILENCE_MS: Final = 5000
"""A broker that is silent for so long is taken for dead."""
_LOST: Final = zmq.EVENT_DISCONNECTED | zmq.EVENT_CLOSED | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL


class Publisher:
    """Sends messages to a broker. Use it in ``async with``, or call `close` in the end.

    ``publisher_socket_addr`` is the broker's; receipts come from the port before it, unless ``receipt_socket_addr``
    says otherwise. ``partitions`` is for those who choose partitions themselves: the broker refuses what is sent on the
    belief that a topic has more or fewer of them than it has. ``secret`` is the broker's, if its sockets are not open.

    Delivery: at least once. Whatever has no receipt when the broker goes away is sent again when it is back; a broker
    that lives on stores nothing twice. Order: that of the calls, per partition.
    """

    def __init__(
        self,
        publisher_socket_addr: str = PUBLISHER_SOCKET_ADDR,
        partitions: int | None = None,
        *,
        receipt_socket_addr: str | None = None,
        secret: str = "",
    ) -> None:
        self._secret = secret
        self._address = receipt_socket_addr or receipt_address(publisher_socket_addr)
        self._partitions = partitions
        self._id = uuid4().bytes
        self._number = 0
        self._turns = asyncio.Semaphore(MAX_IN_FLIGHT)
        self._sent: dict[bytes, tuple[bytes, asyncio.Future[bytes]]] = {}
        self._socket: BurstSocket | None = None
        self._working: asyncio.Task[None] | None = None
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Leave the broker; whoever waits for a receipt gets `NotConnected`. May be called twice."""
        self._is_closed = True
        if self._working is not None:
            self._working.cancel()
            await asyncio.gather(self._working, return_exceptions=True)
        for _, receipt in self._sent.values():
            if not receipt.done():
                receipt.set_exception(NotConnected("The publisher was closed. The messages may have been stored."))

    # Sending

    @overload
    async def send(self, topic: str, messages: Sequence[Any], /) -> None: ...

    @overload
    async def send(self, topic: str, partition: int | str | None, messages: Sequence[Any], /) -> None: ...

    async def send(self, topic: str, *given: Any) -> None:
        """Send messages to one partition of a topic, and return when they are stored: `send(topic, messages)` lets the
        broker choose the partition, `send(topic, partition, messages)` does not.

        Cancellation: the messages may be stored or not.

        Raises:
            NotSerializable: they cannot be written as JSON.
            PayloadTooLarge: they are too many or too large to be sent at once.
            RequestFailed: the broker refuses them; ``remote_code`` says why.
            NotConnected: the publisher was closed.
        """
        partition, messages = given if len(given) == 2 else (None, *given)
        await self.batch([{"topic": topic, "partition": partition, "payload": messages}])

    async def batch(self, arrays: Sequence[dict[str, Any]]) -> None:
        """Send several arrays at once, each a dictionary with topic, payload and maybe partition, and return when all
        are stored. Errors are those of `send`; all that is not refused is stored even then.
        """
        published = [self._published(array) for array in arrays]
        frame = pack_json(published)
        if len(frame) > MAX_FRAME_BYTES:
            raise PayloadTooLarge(
                f"{len(frame)} bytes are more than the {MAX_FRAME_BYTES} that a broker takes at once."
            )
        async with self._turns:
            if self._is_closed:
                raise NotConnected("The publisher was closed.")
            if self._working is None:
                self._working = asyncio.create_task(self._stay_connected(), name="onebus-publisher")
            self._number += 1
            number = b"%d" % self._number
            receipt: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
            self._sent[number] = frame, receipt
            self._pass_on(number, frame)
            try:
                refused = await receipt
            finally:
                del self._sent[number]
        if refused:
            refusal = msgspec.json.decode(refused, type=Refusal)
            raise RequestFailed(refusal.message, refusal.code)

    def _published(self, array: dict[str, Any]) -> dict[str, Any]:
        topic, payload = array.get("topic"), array.get("payload")
        if not isinstance(topic, str) or not isinstance(payload, list | tuple):
            raise InvalidArgument("Each array needs a topic and a payload, which is a list of messages.")
        chosen = array.get("partition")
        return {"topic": topic, "payload": payload, "partition": chosen, "partitions": self._partitions}

    def _pass_on(self, number: bytes, frame: bytes) -> None:
        if self._socket is not None:
            # It has room for all that may be in flight: if it refuses, its connection is lost, and the next gets it.
            with suppress(zmq.Again):
                self._socket.send([self._id, number, frame])

    # Being connected

    async def _stay_connected(self) -> None:
        context = zmq.Context()
        try:
            while True:
                await self._connect_once(context)
                await asyncio.sleep(RECONNECT_SECONDS)
        finally:
            context.destroy(linger=0)

    async def _connect_once(self, context: "zmq.Context[zmq.Socket[bytes]]") -> None:
        """Talk to the broker over one connection, which begins with the oldest of what has no receipt.

        A socket that connects again by itself would go on with what is newer, and the order would be lost.
        """
        socket = context.socket(zmq.DEALER)
        for option, value in (
            (zmq.LINGER, 0),
            (zmq.SNDHWM, 0),
            (zmq.RECONNECT_IVL, -1),
            (zmq.HEARTBEAT_IVL, HEARTBEAT_MS),
            (zmq.HEARTBEAT_TIMEOUT, SILENCE_MS),
        ):
            socket.setsockopt(option, value)
        if self._secret:
            unlock(socket, self._secret)
        monitor = BurstSocket(socket.get_monitor_socket(_LOST))
        work: list[asyncio.Task[Any]] = []
        line = BurstSocket(socket)
        try:
            socket.connect(self._address)
            self._socket = line
            for number, (frame, _) in self._sent.items():
                self._pass_on(number, frame)
            # Whatever the monitor tells: the connection is lost, or could not be made.
            work = [asyncio.create_task(self._receive(line)), asyncio.create_task(monitor.receive())]
            await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._socket = None
            for task in work:
                task.cancel()
            await asyncio.gather(*work, return_exceptions=True)
            socket.disable_monitor()
            monitor.close()
            line.close()

    async def _receive(self, line: BurstSocket) -> None:
        while True:
            for numbers, refused in await line.receive():
                for number in numbers.split():
                    _, receipt = self._sent.get(number, (b"", None))
                    if receipt is not None and not receipt.done():
                        receipt.set_result(refused)
