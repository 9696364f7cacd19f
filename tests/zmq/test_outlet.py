import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import zmq
import zmq.asyncio

from onebus.zmq.outlet import MAX_WAITING_MESSAGES, STUCK_SECONDS, Outlet
from tests.objects.hearing import comes_true
from tests.services.port import free_port


class OutletWithReader:
    """An outlet, and somebody who listens to its only room, and has little place for what it does not read."""

    def __init__(self, stuck_seconds: float) -> None:
        self.subscribed: list[str] = []
        self._context = zmq.Context()
        self._context_of_readers = zmq.asyncio.Context()
        socket = self._context.socket(zmq.XPUB)
        self.outlet = Outlet(socket, self.subscribed.append, stuck_seconds=stuck_seconds)
        self._address = f"tcp://127.0.0.1:{free_port()}"
        socket.bind(self._address)
        self._listening = asyncio.create_task(self.outlet.listen())

    async def reader(self) -> "zmq.asyncio.Socket":
        before = self.outlet.listeners("room")
        reader = self._context_of_readers.socket(zmq.SUB)
        reader.setsockopt(zmq.RCVHWM, 1)
        reader.connect(self._address)
        reader.subscribe("room")
        await comes_true(lambda: self.outlet.listeners("room") == before + 1)
        return reader

    async def fill(self) -> int:
        """Send until nothing more fits, and return how many messages were sent."""
        sent = 0
        # Slowly enough for the buffers of the system to fill up too.
        while self.outlet.send([b"room", b"%d" % sent, b"x" * 100_000]):
            sent += 1
            await asyncio.sleep(0)
        return sent

    async def close(self) -> None:
        self._listening.cancel()
        self.outlet.close()
        self._context.destroy(linger=0)
        self._context_of_readers.destroy(linger=0)


@asynccontextmanager
async def opened(stuck_seconds: float = STUCK_SECONDS) -> AsyncIterator[OutletWithReader]:
    one = OutletWithReader(stuck_seconds)
    try:
        yield one
    finally:
        await one.close()


async def test_what_does_not_fit_is_refused_and_all_else_arrives() -> None:
    async with opened() as place:
        slow = await place.reader()

        sent = await place.fill()
        received = [int((await slow.recv_multipart())[1]) for _ in range(sent)]

        assert place.subscribed == ["room"]
        assert sent >= MAX_WAITING_MESSAGES
        assert received == list(range(sent))
        slow.close()
        await comes_true(lambda: place.outlet.listeners("room") == 0)


async def test_whoever_reads_nothing_for_long_does_not_hold_up_the_others() -> None:
    async with opened(stuck_seconds=1) as place:
        frozen = await place.reader()
        await place.fill()
        other = await place.reader()

        await comes_true(lambda: place.outlet.send([b"room", b"go on"]))

        assert await other.recv_multipart() == [b"room", b"go on"]
        frozen.close()


async def test_whoever_reads_slowly_is_not_cut_off() -> None:
    async with opened(stuck_seconds=2) as place:
        slow = await place.reader()
        sent = await place.fill()
        received = []
        for _ in range(40):
            received.append(int((await slow.recv_multipart())[1]))
            await asyncio.sleep(0.1)
        received += [int((await slow.recv_multipart())[1]) for _ in range(sent - len(received))]

        assert received == list(range(sent))
