import asyncio
from collections.abc import AsyncIterator

import pytest
import zmq

from onebus.zmq.burst import MAX_BURST, BurstSocket


@pytest.fixture
async def pair() -> "AsyncIterator[tuple[BurstSocket, BurstSocket]]":
    context = zmq.Context()
    sockets = []
    for connect in ("bind", "connect"):
        socket = context.socket(zmq.PAIR)
        socket.setsockopt(zmq.SNDHWM, 0)
        socket.setsockopt(zmq.RCVHWM, 0)
        getattr(socket, connect)("inproc://pair")
        sockets.append(BurstSocket(socket))
    yield sockets[0], sockets[1]
    for one in sockets:
        one.close()
    context.destroy(linger=0)


async def received(socket: BurstSocket, count: int) -> list[int]:
    numbers: list[int] = []
    while len(numbers) < count:
        numbers += [int(frame) for (frame,) in await socket.receive()]
    return numbers


async def test_all_that_has_come_is_taken_at_once_and_in_order(pair: "tuple[BurstSocket, BurstSocket]") -> None:
    one, other = pair
    for number in range(MAX_BURST + 10):
        one.send([b"%d" % number])

    first, second = await other.receive(), await other.receive()

    assert [len(first), len(second)] == [MAX_BURST, 10]
    assert [int(frame) for (frame,) in first + second] == list(range(MAX_BURST + 10))


async def test_whoever_waits_hears_of_messages_however_much_is_sent_meanwhile(
    pair: "tuple[BurstSocket, BurstSocket]",
) -> None:
    one, other = pair

    async def talk(mine: BurstSocket) -> None:
        for number in range(500):
            mine.send([b"%d" % number])
            if number % 7 == 0:
                await asyncio.sleep(0)

    async with asyncio.timeout(20):
        heard, overheard, *_ = await asyncio.gather(received(one, 500), received(other, 500), talk(one), talk(other))

    assert heard == overheard == list(range(500))


async def test_whoever_waits_is_cancelled_when_the_socket_is_closed(pair: "tuple[BurstSocket, BurstSocket]") -> None:
    waiting = asyncio.create_task(pair[0].receive())
    await asyncio.sleep(0)
    pair[0].close()
    pair[0].close()

    with pytest.raises(asyncio.CancelledError):
        await waiting
