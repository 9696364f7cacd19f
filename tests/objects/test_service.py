import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pytest

from onebus import Bus
from onebus.errors import (
    InvalidArgument,
    InvalidName,
    NoOneServes,
    NotConnected,
    NotSerializable,
    RequestFailed,
    RequestTimedOut,
)
from onebus.objects.places import place_of_object
from onebus.objects.service import MAX_WAITING_REPLIES, Handler, Service
from tests.clock import FakeClock
from tests.objects.conftest import Connect
from tests.objects.hearing import Heard, comes_true, errors_of


async def served(bus: Bus, name: str, handler: Handler, **options: Any) -> Service:
    service = bus.service(name)
    await service.serve(handler, **options)
    return service


def echo(data: Any) -> Any:
    return data


class Gate:
    """A handler that lets requests through when it is opened, and remembers which came."""

    def __init__(self) -> None:
        self.came: list[Any] = []
        self.at_once = 0
        self.most_at_once = 0
        self.opened = asyncio.Event()

    async def handle(self, data: Any) -> str:
        self.came.append(data)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await self.opened.wait()
        finally:
            self.at_once -= 1
        return f"done {data}"


def ask(service: Service, *requests: Any, **options: Any) -> "list[asyncio.Task[Any]]":
    return [asyncio.create_task(service.request(data, **options)) for data in requests]


async def read_all(replies: AsyncGenerator[Any], received: list[Any]) -> None:
    async for reply in replies:
        received.append(reply)  # noqa: PERF401


# Asking and answering


async def test_a_request_gets_its_reply_as_what_it_was(bus: Bus, other_bus: Bus, name: str) -> None:
    sent = ["text ✓", b"\0\xff bytes", {"json": [1, 2.5, None, True]}, 7, None, [], "", b""]
    await served(bus, name, echo)
    client = other_bus.service(name)

    replies = [await client.request(data) for data in sent]

    assert replies == sent
    assert [type(reply) for reply in replies] == [type(data) for data in sent]


async def test_requests_may_be_made_at_once_from_the_very_first(bus: Bus, other_bus: Bus, name: str) -> None:
    async def double(number: int) -> int:
        return number * 2

    await served(bus, name, double)
    client = other_bus.service(name)
    heard = Heard(client, "connected", "error")

    assert await asyncio.gather(*ask(client, *range(20))) == [number * 2 for number in range(20)]

    assert heard.events == ["connected"]


async def test_servers_share_the_requests(bus: Bus, other_bus: Bus, connect: Connect, name: str) -> None:
    both_are_busy = asyncio.Barrier(2)

    async def handle(data: Any) -> Any:
        await both_are_busy.wait()
        return data

    await served(bus, name, handle, concurrency=1)
    await served(other_bus, name, handle, concurrency=1)
    client = (await connect()).service(name)

    replies = await asyncio.gather(*ask(client, *range(10)))

    assert replies == list(range(10))


async def test_a_service_may_be_asked_by_the_bus_that_serves_it(local_bus: Bus, name: str) -> None:
    service = await served(local_bus, name, echo)

    assert await service.request("me") == "me"
    assert await local_bus.service(name).request("me too") == "me too"


async def test_replies_are_streamed(bus: Bus, other_bus: Bus, name: str) -> None:
    async def count(limit: int) -> AsyncGenerator[int]:
        for number in range(limit):
            yield number

    await served(bus, name, count)
    client = other_bus.service(name)

    assert [reply async for reply in client.stream(5)] == [0, 1, 2, 3, 4]
    assert [reply async for reply in client.stream(0)] == []
    assert await client.request(5) == 4
    assert await client.request(0) is None


async def test_a_single_reply_is_a_stream_of_one(local_bus: Bus, other_local_bus: Bus, name: str) -> None:
    await served(local_bus, name, echo)

    assert [reply async for reply in other_local_bus.service(name).stream("one")] == ["one"]


async def test_a_stream_that_was_left_disturbs_nobody(local_bus: Bus, other_local_bus: Bus, name: str) -> None:
    may_go_on = asyncio.Event()

    async def count(limit: int) -> AsyncGenerator[int]:
        for number in range(limit):
            yield number
            if limit > 1:
                await may_go_on.wait()

    await served(local_bus, name, count)
    client = other_local_bus.service(name)
    errors = errors_of(client)

    async with aclosing(client.stream(100)) as replies:
        assert await anext(replies) == 0
    may_go_on.set()

    assert await client.request(1) == 0
    assert errors == []


async def test_a_notification_is_handled_and_not_answered(bus: Bus, other_bus: Bus, name: str) -> None:
    came: list[Any] = []
    service = await served(bus, name, came.append)
    errors = errors_of(service)

    await other_bus.service(name).notify({"nice": "weather"})

    await comes_true(lambda: came)
    assert came == [{"nice": "weather"}]
    assert errors == []


async def test_objects_tell_what_happens_to_them(local_bus: Bus, other_local_bus: Bus, name: str) -> None:
    server, client = local_bus.service(name), other_local_bus.service(name)
    events = ("serving", "connected", "request", "disconnected", "error")
    heard_by_server, heard_by_client = Heard(server, *events), Heard(client, *events)

    await server.serve(echo)
    for number in (1, 2):
        await client.request(number)
    for _ in range(2):
        await client.disconnect()
        await server.disconnect()

    assert heard_by_server.events == ["serving", ("request", 1), ("request", 2), "disconnected"]
    assert heard_by_client.events == ["connected", "disconnected"]
    assert not server.is_serving


async def test_services_do_not_mix(bus: Bus, other_bus: Bus, name: str) -> None:
    await served(bus, name, lambda data: "one")
    await served(bus, f"{name}-other", lambda data: "other")
    queue = bus.queue(name)
    await queue.attach()
    await queue.push("into the queue")

    assert await other_bus.service(name).request(None) == "one"
    assert await other_bus.service(f"{name}-other").request(None) == "other"
    assert await queue.count() == 1


# What goes wrong


class OutOfStock(Exception):
    pass


async def test_errors_are_told_without_where_they_happened(bus: Bus, other_bus: Bus, name: str) -> None:
    def refuse(data: Any) -> Any:
        if data == "bus error":
            raise InvalidArgument("not like this")
        raise OutOfStock("no apples")

    await served(bus, name, refuse)
    client = other_bus.service(name)

    with pytest.raises(RequestFailed) as failed:
        await client.request("apples")
    with pytest.raises(RequestFailed) as failed_otherwise:
        await client.request("bus error")

    assert (str(failed.value), failed.value.remote_code) == ("no apples", "OutOfStock")
    assert failed_otherwise.value.remote_code == InvalidArgument.code
    assert "Traceback" not in str(failed.value)
    assert failed.value.__cause__ is None


async def test_an_error_in_mid_stream_comes_after_the_replies_before_it(
    local_bus: Bus, other_local_bus: Bus, name: str
) -> None:
    async def count_badly(data: Any) -> AsyncGenerator[int]:
        yield 1
        raise OutOfStock("of numbers")

    await served(local_bus, name, count_badly)
    received: list[int] = []

    with pytest.raises(RequestFailed, match="of numbers"):
        await read_all(other_local_bus.service(name).stream(None), received)

    assert received == [1]


@pytest.mark.parametrize("text", ["", "\udc80 is no Unicode", "x" * 10_000])
async def test_errors_of_any_text_are_told(local_bus: Bus, name: str, text: str) -> None:
    def fail(data: Any) -> Any:
        raise OutOfStock(text)

    await served(local_bus, name, fail)

    with pytest.raises(RequestFailed) as failed:
        await local_bus.service(name).request(None, timeout=5)

    assert failed.value.remote_code == "OutOfStock"


async def test_a_reply_that_cannot_be_sent_is_an_error(local_bus: Bus, other_local_bus: Bus, name: str) -> None:
    await served(local_bus, name, lambda data: object())

    with pytest.raises(RequestFailed) as failed:
        await other_local_bus.service(name).request(None)

    assert failed.value.remote_code == NotSerializable.code


async def test_a_request_that_cannot_be_sent_is_refused(local_bus: Bus, other_local_bus: Bus, name: str) -> None:
    await served(local_bus, name, echo)
    client = other_local_bus.service(name)

    with pytest.raises(NotSerializable):
        await client.request(object())

    assert await client.request("good") == "good"
    await client.disconnect()


async def test_nobody_waits_for_a_service_that_nobody_serves(bus: Bus, other_bus: Bus, name: str) -> None:
    client = bus.service(name)
    began = time.monotonic()

    for call in (client.request, client.notify):
        with pytest.raises(NoOneServes, match=name):
            await call("hello")
    with pytest.raises(NoOneServes):
        await anext(client.stream("hello"))

    assert time.monotonic() - began < 5
    await served(other_bus, name, echo)
    assert await client.request("now") == "now"


async def test_a_request_that_is_not_answered_in_time_fails(bus: Bus, other_bus: Bus, name: str) -> None:
    gate = Gate()
    await served(bus, name, gate.handle)
    client = other_bus.service(name)

    with pytest.raises(RequestTimedOut, match=r"0\.2 s"):
        await client.request("slow", timeout=0.2)

    gate.opened.set()
    assert await client.request("quick") == "done quick"


async def test_requests_that_nobody_took_in_time_are_dropped(
    bus: Bus, connect: Connect, clock: FakeClock, name: str
) -> None:
    gate = Gate()
    await served(await connect(clock=clock), name, gate.handle, concurrency=1)
    client = bus.service(name)
    (first,) = ask(client, "first", timeout=30)
    await comes_true(lambda: gate.came)
    with pytest.raises(RequestTimedOut):
        await client.request("too late", timeout=0.2)
    (last,) = ask(client, "last", timeout=30)

    clock.advance(2)
    gate.opened.set()

    assert [await first, await last] == ["done first", "done last"]
    assert gate.came == ["first", "last"]


async def test_a_reader_that_is_too_slow_is_told_and_delays_nobody(local_bus: Bus, name: str) -> None:
    async def count(limit: int) -> AsyncGenerator[int]:
        for number in range(limit):
            yield number

    await served(local_bus, name, count)
    client = local_bus.service(name)
    received: list[int] = []

    async with aclosing(client.stream(MAX_WAITING_REPLIES * 2)) as replies:
        received.append(await anext(replies))
        assert await client.request(3) == 2
        with pytest.raises(RequestFailed) as failed:
            await read_all(replies, received)

    assert failed.value.remote_code == "overrun"
    assert len(received) <= MAX_WAITING_REPLIES + 1
    await client.disconnect()


async def test_bad_names_are_refused(local_bus: Bus) -> None:
    for bad in ("", "a|b", "new\nline", "x" * 300):
        with pytest.raises(InvalidName):
            local_bus.service(bad)


async def test_garbage_among_the_replies_harms_nobody(local_bus: Bus, name: str) -> None:
    gate = Gate()
    await served(local_bus, name, gate.handle)
    client = local_bus.service(name)
    errors = errors_of(client)
    (request,) = ask(client, "good")
    await comes_true(lambda: gate.came)

    place = f"{place_of_object('service', name)}|"
    (signal,) = (one for one in local_bus.link.store.switchboard.heard_signals if one.startswith(place))
    await local_bus.link.store.signal(signal, b"garbage")
    gate.opened.set()

    assert await request == "done good"
    assert len(errors) == 1


# Serving


async def test_an_object_serves_once_at_a_time(local_bus: Bus, name: str) -> None:
    service = await served(local_bus, name, echo)

    with pytest.raises(InvalidArgument, match="already"):
        await service.serve(echo)
    with pytest.raises(InvalidArgument, match="concurrency"):
        await local_bus.service(name).serve(echo, concurrency=0)

    assert service.is_serving
    await service.stop()
    await service.stop()
    assert not service.is_serving


async def test_no_more_requests_are_handled_at_a_time_than_allowed(bus: Bus, other_bus: Bus, name: str) -> None:
    gate = Gate()
    await served(bus, name, gate.handle, concurrency=2)
    requests = ask(other_bus.service(name), *range(6))
    await comes_true(lambda: gate.at_once == 2)

    gate.opened.set()

    assert await asyncio.gather(*requests) == [f"done {number}" for number in range(6)]
    assert gate.most_at_once == 2


async def test_a_server_may_serve_a_limited_number_of_requests(bus: Bus, other_bus: Bus, name: str) -> None:
    came: list[Any] = []
    server = await served(bus, name, came.append, max=1)
    client = other_bus.service(name)

    await client.request("first")
    await comes_true(lambda: not server.is_serving)

    with pytest.raises((NoOneServes, RequestTimedOut)):
        await client.request("second", timeout=0.2)
    with pytest.raises(NoOneServes):
        await bus.service(name).request("third")
    assert came == ["first"]


async def test_a_server_that_stops_answers_what_it_has_begun(bus: Bus, other_bus: Bus, name: str) -> None:
    gate = Gate()
    server = await served(bus, name, gate.handle)
    requests = ask(other_bus.service(name), 1, 2)
    await comes_true(lambda: len(gate.came) == 2)

    stopping = asyncio.create_task(server.disconnect())
    await comes_true(lambda: not server.is_serving)
    assert not stopping.done()
    gate.opened.set()

    assert await asyncio.gather(*requests) == ["done 1", "done 2"]
    await stopping


async def test_a_server_that_stops_leaves_to_others_what_it_has_not_begun(bus: Bus, other_bus: Bus, name: str) -> None:
    gate = Gate()
    server = await served(bus, name, gate.handle, concurrency=2)
    requests = ask(other_bus.service(name), *range(6))
    await comes_true(lambda: len(gate.came) == 2)

    async with asyncio.timeout(10):
        await server.stop(grace=0)
    assert gate.at_once == 0
    begun = set(gate.came)
    await served(other_bus, name, echo)

    rest = [number for number in range(6) if number not in begun]
    assert await asyncio.gather(*(requests[number] for number in rest)) == rest
    for number in begun:
        requests[number].cancel()


async def test_a_handler_may_stop_its_server(local_bus: Bus, other_local_bus: Bus, name: str) -> None:
    async def answer_and_stop(data: Any) -> str:
        async with asyncio.timeout(5):
            await server.stop()
        return "the last answer"

    server = await served(local_bus, name, answer_and_stop)

    assert await other_local_bus.service(name).request(None) == "the last answer"
    assert not server.is_serving


async def test_a_request_is_answered_after_the_server_was_restarted(bus: Bus, other_bus: Bus, name: str) -> None:
    server = await served(bus, name, lambda data: "first life")
    client = other_bus.service(name)
    assert await client.request(None) == "first life"

    await server.stop()
    await server.serve(lambda data: "second life")

    assert await client.request(None) == "second life"


async def test_a_request_waits_for_a_server_that_is_being_restarted(
    local_bus: Bus, other_local_bus: Bus, name: str
) -> None:
    server = await served(local_bus, name, echo)
    client = other_local_bus.service(name)
    await client.request("so that it is known")
    await server.disconnect()
    (request,) = ask(client, "between two lives")

    await server.serve(lambda data: "second life")

    assert await request == "second life"


# Leaving


async def test_a_client_that_disconnects_waits_for_its_replies(local_bus: Bus, other_local_bus: Bus, name: str) -> None:
    gate = Gate()
    await served(local_bus, name, gate.handle)
    client = other_local_bus.service(name)
    (request,) = ask(client, 1)
    await comes_true(lambda: gate.came)

    leaving = asyncio.create_task(client.disconnect())
    await asyncio.wait([leaving], timeout=0.05)
    assert not leaving.done()
    gate.opened.set()
    await leaving

    assert await request == "done 1"
    assert await client.request("connected again") == "done connected again"


async def test_a_client_that_disconnects_at_once_makes_nobody_wait(
    local_bus: Bus, other_local_bus: Bus, name: str
) -> None:
    gate = Gate()
    await served(local_bus, name, gate.handle)
    client = other_local_bus.service(name)
    (request,) = ask(client, 1, timeout=100)
    await comes_true(lambda: gate.came)

    await client.disconnect(grace=0.05)

    async with asyncio.timeout(5):
        with pytest.raises(RequestFailed) as failed:
            await request
    assert failed.value.remote_code == "disconnected"


async def test_a_bus_disconnects_while_its_clients_wait(bus: Bus, other_bus: Bus, name: str) -> None:
    gate = Gate()
    await served(bus, name, gate.handle)
    client = other_bus.service(name)
    (request,) = ask(client, 1, timeout=100)
    await comes_true(lambda: gate.came)

    async with asyncio.timeout(10):
        await other_bus.disconnect()
        with pytest.raises(RequestFailed):
            await request
    with pytest.raises(NotConnected):
        await client.request(2)


async def test_a_bus_disconnects_while_it_serves(bus: Bus, other_bus: Bus, name: str) -> None:
    gate = Gate()
    service = await served(bus, name, gate.handle, concurrency=2)
    heard = Heard(service, "disconnected")
    requests = ask(other_bus.service(name), *range(5))
    await comes_true(lambda: gate.at_once == 2)

    async with asyncio.timeout(10):
        await bus.disconnect()

    assert gate.at_once == 0
    assert heard.events == ["disconnected"]
    for request in requests:
        request.cancel()
    with pytest.raises(NoOneServes):
        await other_bus.service(name).request("anybody?")


async def test_a_handler_may_disconnect_the_bus(bus: Bus, other_bus: Bus, name: str) -> None:
    left = Heard(bus, "offline")

    async def go_home(data: Any) -> None:
        await bus.disconnect()

    await served(bus, name, go_home)

    await other_bus.service(name).notify("go home")

    await left.until("offline")
    await bus.connect()
    await served(bus, name, echo)
    assert await other_bus.service(name).request("welcome back") == "welcome back"


async def test_a_service_that_was_left_is_not_remembered(local_bus: Bus, name: str) -> None:
    for number in range(3):
        service = await served(local_bus, f"{name}-{number}", echo)
        await service.request("hello")
        await service.disconnect()

    assert not local_bus.link._attached


async def test_a_server_that_crashed_is_missed_after_a_minute(connect: Connect, clock: FakeClock, name: str) -> None:
    bus, doomed_bus = await connect(clock=clock), await connect(clock=clock)
    errors_of(await served(doomed_bus, name, echo))
    assert await bus.service(name).request("alive") == "alive"

    await doomed_bus.link.store.close()
    clock.advance(61)

    with pytest.raises(NoOneServes):
        await bus.service(name).request("dead")
