import asyncio
import logging
from pathlib import Path
from uuid import uuid4

import pytest

from onebus import Bus
from onebus.errors import AlreadyConnected, InvalidArgument, InvalidUrl, NotConnected, StoreError, StoreUnavailable
from onebus.message import Message
from tests.backings import Backing
from tests.objects.hearing import Heard, comes_true, take_data


@pytest.fixture
def memory_url() -> str:
    return f"memory://{uuid4().hex}"


async def test_a_bus_tells_when_it_connects_and_when_it_disconnects_again_and_again(backing: Backing) -> None:
    bus = Bus.create(backing.url)
    heard = Heard(bus, "online", "offline", "error")
    assert not bus.is_online

    for _ in range(2):
        await bus.connect()
        assert bus.is_online
        await bus.disconnect()
        assert not bus.is_online

    assert heard.events == ["online", "offline", "online", "offline"]


async def test_a_bus_connects_and_disconnects_as_a_context(backing: Backing) -> None:
    bus = Bus(backing.url)
    heard = Heard(bus, "online", "offline")

    async with bus as entered:
        assert entered is bus
        assert bus.is_online

    assert not bus.is_online
    assert heard.events == ["online", "offline"]


async def test_connecting_twice_is_an_error_and_changes_nothing(backing: Backing) -> None:
    bus = Bus(backing.url)
    heard = Heard(bus, "online", "offline")
    await bus.connect()

    with pytest.raises(AlreadyConnected) as caught:
        await bus.connect()

    assert str(caught.value) == "already connected"
    assert bus.is_online
    await bus.disconnect()
    await bus.disconnect()
    assert heard.events == ["online", "offline"]


async def test_connecting_twice_at_once_connects_once(memory_url: str) -> None:
    bus = Bus(memory_url)
    heard = Heard(bus, "online", "offline")

    results = await asyncio.gather(bus.connect(), bus.connect(), return_exceptions=True)

    assert [type(result) for result in results] == [type(None), AlreadyConnected]
    await bus.disconnect()
    assert heard.events == ["online", "offline"]


async def test_a_bus_whose_store_cannot_be_opened_may_try_again(tmp_path: Path) -> None:
    folder = tmp_path / "not yet"
    bus = Bus(f"sqlite:///{folder}/bus.db")
    heard = Heard(bus, "online", "offline")
    with pytest.raises(StoreError):
        await bus.connect()
    assert not bus.is_online

    folder.mkdir()
    await bus.connect()

    assert bus.is_online
    await bus.disconnect()
    assert heard.events == ["online", "offline"]


async def test_a_bus_that_is_disconnected_while_it_connects_stays_disconnected(tmp_path: Path) -> None:
    bus = Bus(f"sqlite:///{tmp_path}/bus.db")
    connecting = asyncio.create_task(bus.connect())
    await asyncio.sleep(0)

    await bus.disconnect()

    with pytest.raises(NotConnected):
        await connecting
    assert not bus.is_online
    with pytest.raises(NotConnected):
        await bus.queue("jobs").exists()
    async with bus:
        assert bus.is_online


@pytest.mark.parametrize("url", ["", "nonsense", "ftp://somewhere"])
async def test_an_url_that_no_store_answers_to_is_refused(url: str) -> None:
    with pytest.raises(InvalidUrl):
        await Bus(url).connect()


async def test_a_list_of_urls_spreads_the_objects(tmp_path: Path) -> None:
    urls = [f"sqlite:///{tmp_path}/{number}.db" for number in range(3)]
    async with Bus(urls) as bus, Bus(urls) as other:
        for number in range(20):
            async with bus.queue(f"q{number}") as queue:
                await queue.push(number)
        for number in range(20):
            async with other.queue(f"q{number}") as queue:
                assert await take_data(queue, 1) == [number]

    held = []
    for url in urls:
        async with Bus(url) as bus:
            held.append([number for number in range(20) if await bus.queue(f"q{number}").exists()])
    assert sorted(number for numbers in held for number in numbers) == list(range(20))
    assert all(held)


async def test_objects_need_a_connected_bus(memory_url: str, name: str) -> None:
    bus = Bus(memory_url)
    queue = bus.queue(name)

    for call in (queue.attach, queue.exists, queue.count, queue.ttl, queue.flush, queue.metadata, queue.redrive):
        with pytest.raises(NotConnected, match=r"bus\.connect"):
            await call()

    async with bus:
        assert await queue.attach() is False
    with pytest.raises(NotConnected):
        await queue.exists()


async def test_disconnecting_detaches_everything_and_loses_nothing(bus: Bus, other_bus: Bus, name: str) -> None:
    queue = bus.queue(name)
    heard = Heard(queue, "attached", "consuming", "detached", "error")
    await queue.attach()
    handled = asyncio.Event()
    held: list[int] = []

    async def hold(message: Message) -> None:
        held.append(message.data)
        await handled.wait()

    queue.on("message", hold)
    for number in range(1000):
        queue.push(number)
    await queue.start(prefetch=100)
    await comes_true(lambda: held)
    for number in range(1000, 1100):
        queue.push(number)

    await bus.disconnect()

    assert held == [0]
    assert heard.events == [("attached", False), ("consuming", True), ("consuming", False), "detached"]
    assert not queue.is_attached
    async with other_bus.queue(name) as rest:
        assert await take_data(rest, 1099) == list(range(1, 1100))
        assert await rest.count() == 0


async def test_the_objects_of_a_bus_work_again_when_it_is_connected_again(bus: Bus, other_bus: Bus, name: str) -> None:
    queue = bus.queue(name)
    await queue.attach()
    await bus.disconnect()
    kept = bus.queue(f"{name}-kept")

    await bus.connect()
    await queue.attach()
    await kept.attach()
    queue.push("a")
    kept.push("b")

    assert await take_data(queue, 1) == ["a"]
    assert await take_data(kept, 1) == ["b"]


async def test_a_message_handler_may_disconnect_the_bus(bus: Bus, name: str) -> None:
    queue = bus.queue(name)
    heard = Heard(bus, "offline", "error")
    problems = Heard(queue, "error")
    gone = asyncio.Event()

    async def leave(_: Message) -> None:
        await bus.disconnect()
        gone.set()

    queue.on("message", leave)
    await queue.attach()
    await queue.push("go")
    await queue.start()

    async with asyncio.timeout(20):
        await gone.wait()
    assert heard.events == ["offline"]
    assert problems.events == []
    with pytest.raises(NotConnected):
        await queue.exists()
    await bus.connect()
    assert bus.is_online


async def test_a_handler_of_closed_may_disconnect_the_bus(bus: Bus, other_bus: Bus, name: str) -> None:
    queue, closer = bus.queue(name), other_bus.queue(name)
    heard = Heard(bus, "offline", "error")
    queue.on("closed", bus.disconnect)
    await queue.attach()
    await closer.attach()

    await closer.close()

    await comes_true(lambda: heard.events)
    assert heard.events == ["offline"]
    assert not bus.is_online


async def test_going_offline_is_told_even_if_the_bus_disconnects_at_once(memory_url: str) -> None:
    bus = Bus(memory_url)
    heard = Heard(bus, "online", "offline", "error")
    await bus.connect()
    store = bus._store
    assert store is not None

    store.health.went_offline(StoreUnavailable("pulled the plug"))
    await bus.disconnect()

    assert heard.events == ["online", "offline"]


async def test_a_handler_of_offline_may_disconnect_the_bus(memory_url: str) -> None:
    bus = Bus(memory_url)
    heard = Heard(bus, "online", "offline", "error")
    bus.on("offline", bus.disconnect)
    await bus.connect()
    store = bus._store
    assert store is not None

    store.health.went_offline(StoreUnavailable("pulled the plug"))

    await comes_true(lambda: bus._store is None)
    assert heard.events == ["online", "offline"]


async def test_a_bus_cannot_be_connected_while_it_disconnects(bus: Bus, other_bus: Bus, name: str) -> None:
    queue = bus.queue(name)
    await queue.attach()
    attempts: list[BaseException | None] = []

    async def connect_too_early() -> None:
        attempts.extend(await asyncio.gather(bus.connect(), return_exceptions=True))

    queue.on("detaching", connect_too_early)

    await bus.disconnect()

    assert [type(attempt) for attempt in attempts] == [AlreadyConnected]
    await bus.connect()
    assert await queue.exists()


async def test_a_bus_writes_to_the_logger_it_is_given(memory_url: str, caplog: pytest.LogCaptureFixture) -> None:
    mine, yours = logging.getLogger(f"mine.{memory_url}"), logging.getLogger(f"yours.{memory_url}")
    bus = Bus(memory_url, log=mine, log_level="debug")
    async with bus:
        assert bus.log is mine

    assert bus.with_log(yours) is bus
    async with bus:
        pass

    assert [record.name for record in caplog.records] == [mine.name, mine.name, yours.name, yours.name]


@pytest.mark.parametrize(
    ("level", "number"),
    [("error", logging.ERROR), ("warning", logging.WARNING), ("info", logging.INFO), ("debug", logging.DEBUG)],
)
async def test_the_level_of_the_log_is_set_and_debugging_switched_on_and_off(level: str, number: int) -> None:
    logger = logging.getLogger(f"levels.{uuid4().hex}")
    bus = Bus("memory://", log=logger, log_level=level)
    assert logger.level == number

    assert bus.debug() is bus
    assert logger.level == logging.DEBUG
    bus.debug(False)

    assert logger.level == number


async def test_a_logger_keeps_its_own_level_unless_another_is_asked_for() -> None:
    logger = logging.getLogger(f"levels.{uuid4().hex}")
    logger.setLevel(logging.INFO)
    bus = Bus("memory://", log=logger)
    assert logger.level == logging.INFO

    bus.debug(True)
    bus.debug(True)
    bus.debug(False)

    assert logger.level == logging.INFO


async def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="error, warning, info, debug"):
        Bus("memory://", log_level="loud")
