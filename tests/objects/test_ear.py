import asyncio
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

from onebus.errors import SignalsMissed, StoreClosed
from onebus.events import Events
from onebus.objects.ear import Ear
from onebus.stores import create_store
from onebus.stores.base import Store
from onebus.stores.switchboard import MAX_WAITING_SIGNALS
from tests.objects.hearing import comes_true

SIGNAL = "signal"


class Listener:
    """Writes down what an ear hears, and what goes wrong."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self.errors: list[Exception] = []
        events = Events()
        events.on("error", self.errors.append)
        self.ear = Ear(SIGNAL, self._hear, events)

    async def _hear(self, payload: bytes) -> None:
        if payload == b"bad":
            raise ValueError("this cannot be understood")
        self.heard.append(payload)


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    async with create_store(f"memory://{uuid4().hex}") as store:
        yield store


@pytest.fixture
async def listener() -> AsyncIterator[Listener]:
    listener = Listener()
    yield listener
    await listener.ear.close()


async def test_an_ear_hears_in_order_from_the_moment_it_is_open(store: Store, listener: Listener) -> None:
    await store.signal(SIGNAL, b"too early")
    assert await listener.ear.open(store)

    for number in range(10):
        await store.signal(SIGNAL, b"%d" % number)

    await comes_true(lambda: len(listener.heard) == 10)
    assert listener.heard == [b"%d" % number for number in range(10)]


async def test_an_open_ear_is_not_opened_twice(store: Store, listener: Listener) -> None:
    opened = await asyncio.gather(*(listener.ear.open(store) for _ in range(3)))

    assert sorted(opened) == [False, False, True]
    await store.signal(SIGNAL, b"once")
    await store.signal(SIGNAL, b"end")
    await comes_true(lambda: b"end" in listener.heard)
    assert listener.heard == [b"once", b"end"]


async def test_everyone_who_opens_an_ear_hears_what_is_signalled_afterwards(
    store: Store, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_listen = asyncio.Event()

    async def start_slowly(name: str) -> None:
        await may_listen.wait()

    monkeypatch.setattr(store, "_start_listening", start_slowly)
    openers = [asyncio.create_task(listener.ear.open(store)) for _ in range(2)]
    done, _ = await asyncio.wait(openers, timeout=0.05)
    assert not done

    may_listen.set()

    assert await asyncio.gather(*openers) == [True, False]


async def test_a_closed_ear_hears_nothing_and_can_be_opened_again(store: Store, listener: Listener) -> None:
    await listener.ear.open(store)
    await listener.ear.close()
    await listener.ear.close()
    assert not listener.ear.is_open
    assert await store.signal(SIGNAL, b"unheard") == 0

    await listener.ear.open(store)
    await store.signal(SIGNAL, b"heard")

    await comes_true(lambda: listener.heard)
    assert listener.heard == [b"heard"]


async def test_an_ear_that_cannot_listen_says_so(store: Store, listener: Listener) -> None:
    await store.close()

    async with asyncio.timeout(5):
        with pytest.raises(StoreClosed):
            await listener.ear.open(store)

    assert not listener.ear.is_open
    assert listener.errors == []


async def test_closing_an_ear_ends_the_wait_of_whoever_opens_it(
    store: Store, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(name: str) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(store, "_start_listening", never)
    opening = asyncio.create_task(listener.ear.open(store))
    await comes_true(lambda: listener.ear.is_open)

    await listener.ear.close()

    async with asyncio.timeout(5):
        with pytest.raises(StoreClosed):
            await opening


async def test_an_ear_that_is_closed_at_once_makes_nobody_wait(store: Store, listener: Listener) -> None:
    async with asyncio.timeout(5):
        opened, _ = await asyncio.gather(listener.ear.open(store), listener.ear.close(), return_exceptions=True)

    assert isinstance(opened, StoreClosed)
    assert not listener.ear.is_open


async def test_a_cancelled_opener_leaves_the_ear_closed(
    store: Store, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(name: str) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(store, "_start_listening", never)

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await listener.ear.open(store)

    assert not listener.ear.is_open
    assert store.switchboard.heard_signals == []


async def test_an_ear_survives_what_it_cannot_understand(store: Store, listener: Listener) -> None:
    await listener.ear.open(store)

    for payload in (b"bad", b"good"):
        await store.signal(SIGNAL, payload)

    await comes_true(lambda: listener.heard)
    assert listener.heard == [b"good"]
    assert [type(error) for error in listener.errors] == [ValueError]
    assert listener.ear.is_open


async def test_an_ear_that_falls_behind_tells_that_it_missed_something(store: Store, listener: Listener) -> None:
    await listener.ear.open(store)

    for _ in range(MAX_WAITING_SIGNALS + 5):
        store.switchboard.deliver(SIGNAL, b"")

    await comes_true(lambda: len(listener.heard) == MAX_WAITING_SIGNALS)
    assert [type(error) for error in listener.errors] == [SignalsMissed]
    assert listener.ear.is_open


async def test_an_ear_ends_with_its_store(store: Store, listener: Listener) -> None:
    await listener.ear.open(store)

    await store.close()

    await comes_true(lambda: not listener.ear.is_open)
    assert listener.errors == []


async def test_an_ear_may_be_closed_and_opened_by_what_it_hears(store: Store) -> None:
    heard: list[bytes] = []

    async def hear(payload: bytes) -> None:
        heard.append(payload)
        await ear.close()
        if payload == b"again":
            await ear.open(store)

    ear = Ear(SIGNAL, hear, Events())
    await ear.open(store)
    await store.signal(SIGNAL, b"again")
    await comes_true(lambda: heard == [b"again"])

    await store.signal(SIGNAL, b"enough")

    await comes_true(lambda: not store.switchboard.heard_signals)
    assert heard == [b"again", b"enough"]
    assert not ear.is_open
