"""The feeds' door in front of another application, and mounted in one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext

import pytest

from onebus import Bus
from onebus.web import FeedSettings, Middleware, app
from onebus.web.answers import Answer
from onebus.web.asgi import App, Message, Receive, Scope, Send
from tests.web.server import FeedServer, WebServer, running_server


async def shop(scope: Scope, receive: Receive, send: Send) -> None:
    """An application that knows nothing of its start and end, as Django's."""
    if scope["type"] != "http":
        raise ValueError(f"{scope['type']} is not supported")
    if scope["path"] == "/broken":
        raise LookupError("out of stock")
    await Answer(200, "text/plain", f"shop {scope['path']}".encode()).send(send)


@asynccontextmanager
async def standing_in_front_of(inner: App, bus: Bus) -> AsyncIterator[FeedServer]:
    middleware = Middleware(inner, bus, FeedSettings(on_middleware_error=lambda *_: Answer(418, "", b"")))
    async with running_server(middleware, middleware.door.close) as port:
        yield FeedServer(port, middleware.door)


async def test_the_middleware_answers_polls_and_leaves_the_rest_to_the_application(chat: str) -> None:
    bus = Bus("memory://")
    async with standing_in_front_of(shop, bus) as web:
        async with web.poll({chat: 0}) as held:
            assert await held.frame() == []
            await bus.publish(chat, "hi")
            assert await held.data() == ["hi"]
        response = await web.get("/message-business")

    assert response.body == b"shop /message-business"
    assert not bus.is_connected


async def test_an_application_may_keep_silent_about_its_start_and_end() -> None:
    bus = Bus("memory://")

    async def silent(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await shop(scope, receive, send)

    async with standing_in_front_of(silent, bus) as web:
        response = await web.get("/open")
        assert bus.is_connected

    assert response.body == b"shop /open"
    assert not bus.is_connected


async def test_errors_of_the_application_are_not_touched(bus: Bus) -> None:
    async with standing_in_front_of(shop, bus) as web:
        theirs = await web.get("/broken")
        ours = await web.request("POST", "/message-bus/me/poll", body=b"=0")

    assert theirs.status == 500
    assert ours.status == 418


async def test_the_bus_is_connected_before_the_application_starts_and_until_it_has_ended() -> None:
    bus = Bus("memory://")
    seen: list[tuple[str, bool]] = []

    async def inner(scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "lifespan"
        for step in ("startup", "shutdown"):
            message = await receive()
            seen.append((message["type"], bus.is_connected))
            await send({"type": f"lifespan.{step}.complete"})

    async with standing_in_front_of(inner, bus):
        assert bus.is_connected

    assert seen == [("lifespan.startup", True), ("lifespan.shutdown", True)]
    assert not bus.is_connected


@pytest.mark.parametrize("raises", [True, False])
@pytest.mark.parametrize("step", ["startup", "shutdown"])
async def test_the_bus_is_disconnected_when_the_application_fails_to_start_or_end(step: str, raises: bool) -> None:
    bus = Bus("memory://")
    said: list[str] = []
    messages = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])

    async def inner(scope: Scope, receive: Receive, send: Send) -> None:
        for one in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{one}.{'failed' if one == step else 'complete'}"})
            if one == step:
                # Starlette says so and raises, too.
                if raises:
                    raise LookupError("out of stock")
                return

    async def receive() -> Message:
        return next(messages)

    async def send(message: Message) -> None:
        said.append(message["type"])

    with pytest.raises(LookupError) if raises else nullcontext():
        await Middleware(inner, bus)({"type": "lifespan"}, receive, send)

    assert said[-1] == f"lifespan.{step}.failed"
    assert not bus.is_connected


async def test_an_application_may_be_mounted_in_another_one(bus: Bus, chat: str) -> None:
    mounted = app(bus)

    async def outer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            raise ValueError("no lifespan here")
        await mounted({**scope, "root_path": "/bus"}, receive, send)

    await bus.publish(chat, "hi")
    async with running_server(outer, mounted.close) as port:
        web = WebServer(port)
        found = await web.look_for_data({chat: 0}, path="/bus/message-bus/")
        health = await web.get("/bus/healthz")
        index = await web.get("/bus")

    assert found == ["hi"]
    assert (health.status, index.status) == (200, 200)


async def test_a_poll_on_a_bus_that_is_not_connected_is_answered_with_the_reason(chat: str) -> None:
    mounted = app(Bus("memory://"))

    async def without_a_life(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            raise ValueError("no lifespan here")
        await mounted(scope, receive, send)

    async with running_server(without_a_life, mounted.close) as port, WebServer(port).poll({chat: 0}) as reply:
        response = await reply.whole()

    assert (response.status, response.error_code) == (503, "not_connected")


async def test_held_clients_are_let_go_when_the_bus_disconnects(chat: str) -> None:
    bus = Bus("memory://")
    async with bus, standing_in_front_of(shop, bus) as web, web.poll({chat: 0}) as held:
        assert await held.frame() == []
        await bus.disconnect()
        assert await held.frame() == []
        async with asyncio.timeout(20):
            await bus.connect()
        async with web.poll({chat: 0}) as again:
            assert await again.frame() == []
            await bus.publish(chat, "hi")
            assert await again.data() == ["hi"]
