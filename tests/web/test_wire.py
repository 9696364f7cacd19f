"""How `onebus serve` speaks HTTP/1.1: what it understands, what it refuses, and what it does with an answer."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from onebus.web.asgi import App, Receive, Scope, Send
from onebus.web.lane import lane_of
from onebus.web.wire.connection import MAX_HEAD_BYTES
from tests.eventually import eventually
from tests.web.server import running_server

PATIENCE_SECONDS = 30.0


class Client:
    """A connection over which bytes go as they are."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def say(self, *lines: str, body: bytes = b"") -> None:
        self.writer.write("\r\n".join((*lines, "", "")).encode() + body)

    async def hear(self, end: bytes) -> bytes:
        """Return what arrives up to and including some bytes."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await self.reader.readuntil(end)

    async def hear_all(self) -> bytes:
        """Return what arrives before the server hangs up."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await self.reader.read()


async def nothing_to_close() -> None:
    """Let nobody go, because nobody is held."""


@asynccontextmanager
async def talking(app: App, close: Callable[[], Awaitable[None]] = nothing_to_close) -> AsyncIterator[Client]:
    async with running_server(app, close) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            yield Client(reader, writer)
        finally:
            writer.close()


async def whole_body(receive: Receive) -> bytes:
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return body


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with the method, the path, the query and the body."""
    if scope["type"] != "http":
        return
    body = await whole_body(receive)
    text = b" ".join((scope["method"].encode(), scope["path"].encode(), scope["query_string"], body))
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(text))]})
    await send({"type": "http.response.body", "body": text})


async def chunks(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer in two parts without saying how long they are."""
    if scope["type"] != "http":
        return
    await whole_body(receive)
    await send({"type": "http.response.start", "status": 200})
    await send({"type": "http.response.body", "body": b"one", "more_body": True})
    await send({"type": "http.response.body", "body": b"two"})


# Requests


async def test_a_path_is_unquoted_and_a_query_is_not() -> None:
    async with talking(echo) as client:
        client.say("GET /a%20b%C3%A9?c=%20d HTTP/1.1", "host: x")

        assert await client.hear(b"GET /a b\xc3\xa9 c=%20d ")


async def test_a_whole_address_is_understood() -> None:
    async with talking(echo) as client:
        client.say("GET http://somewhere/path?q HTTP/1.1", "host: x")

        assert await client.hear(b"GET /path q ")


async def test_requests_that_are_sent_ahead_are_answered_in_their_order() -> None:
    async with talking(echo) as client:
        for number in range(50):
            client.say(f"POST /{number} HTTP/1.1", "host: x", "content-length: 4", body=b"body")

        for number in range(50):
            assert await client.hear(b"POST /%d  body" % number)


async def test_a_body_may_come_in_chunks() -> None:
    async with talking(echo) as client:
        client.say("POST / HTTP/1.1", "host: x", "transfer-encoding: chunked", body=b"3\r\nabc\r\n")
        client.writer.write(b"2\r\nde\r\n0\r\n\r\n")

        assert await client.hear(b"abcde")


async def test_a_large_body_arrives_whole() -> None:
    body = bytes(range(256)) * 8000
    async with talking(echo) as client:
        client.say("POST / HTTP/1.1", "host: x", f"content-length: {len(body)}", body=body)

        assert (await client.hear(b"\r\n\r\nPOST /  ")).startswith(b"HTTP/1.1 200 OK")
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await client.reader.readexactly(len(body)) == body


async def test_a_client_that_waits_for_leave_to_send_its_body_gets_it() -> None:
    async with talking(echo) as client:
        client.say("POST / HTTP/1.1", "host: x", "content-length: 4", "expect: 100-continue")
        assert await client.hear(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.writer.write(b"late")

        assert await client.hear(b"POST /  late")


async def test_a_wish_for_another_protocol_is_ignored_and_the_body_is_not() -> None:
    async with talking(echo) as client:
        upgrade = ("connection: Upgrade, HTTP2-Settings", "upgrade: h2c", "http2-settings: AAMAAABk")
        for body in (b"one", b"two"):
            client.say("POST /java HTTP/1.1", "host: x", *upgrade, "content-length: 3", body=body)
            assert await client.hear(b"POST /java  " + body)


async def test_what_is_not_http_is_refused() -> None:
    async with talking(echo) as client:
        client.writer.write(b"\x16\x03\x01 hello\r\n\r\n")

        assert (await client.hear_all()).startswith(b"HTTP/1.1 400 Bad Request\r\n")


async def test_a_head_without_end_is_refused() -> None:
    async with talking(echo) as client:
        client.say("GET / HTTP/1.1", "host: x")
        await client.hear(b"GET /  ")
        client.writer.write(b"GET / HTTP/1.1\r\n")
        for _ in range(MAX_HEAD_BYTES // 1000 + 1):
            client.writer.write(b"x-filler: " + b"x" * 1000 + b"\r\n")
            await asyncio.sleep(0)

        assert b"HTTP/1.1 431 Request Header Fields Too Large\r\n" in await client.hear_all()


async def test_a_connection_is_closed_when_nothing_is_asked_over_it_for_long() -> None:
    async with running_server(echo, nothing_to_close, keep_alive_seconds=1) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        client = Client(reader, writer)
        client.say("GET / HTTP/1.1", "host: x")
        await client.hear(b"GET /  ")

        assert await client.hear_all() == b""
        writer.close()


# Answers


@pytest.mark.parametrize(
    ("request_line", "answer"),
    [
        ("GET / HTTP/1.1", b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"),
        ("GET / HTTP/1.0", b"onetwo"),
        ("HEAD / HTTP/1.1", b""),
    ],
)
async def test_an_answer_of_unknown_length_comes_as_its_reader_can_read_it(request_line: str, answer: bytes) -> None:
    async with talking(chunks) as client:
        client.say(request_line, "host: x", "connection: close")

        head, _, body = (await client.hear_all()).partition(b"\r\n\r\n")

        assert body == answer
        assert (b"transfer-encoding: chunked" in head) == body.startswith(b"3")


async def test_head_gets_the_headers_of_get_and_no_body() -> None:
    async with talking(echo) as client:
        client.say("HEAD / HTTP/1.1", "host: x")
        assert b"content-length: 8" in await client.hear(b"\r\n\r\n")
        client.say("GET / HTTP/1.1", "host: x")

        assert (await client.hear(b"GET /  ")).startswith(b"HTTP/1.1 200")


async def test_an_early_answer_does_not_confuse_what_follows() -> None:
    async def refuse(scope: Scope, _: Receive, send: Send) -> None:
        if scope["type"] == "http":
            length = (b"content-length", b"0")
            await send({"type": "http.response.start", "status": 413, "headers": [length]})
            await send({"type": "http.response.body"})

    async with talking(refuse) as client:
        client.say("POST /1 HTTP/1.1", "host: x", "content-length: 300000", body=b"x" * 100_000)
        await client.hear(b"\r\n\r\n")
        client.writer.write(b"x" * 200_000)
        client.say("GET /2 HTTP/1.1", "host: x")

        assert (await client.hear(b"\r\n\r\n")).startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize("has_begun", [False, True])
async def test_an_application_that_fails_ends_its_own_answer_only(has_begun: bool) -> None:
    async def fail(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] != "/fail":
            await echo(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 200})
        if has_begun:
            await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise RuntimeError("this is a test")

    async with running_server(fail, nothing_to_close) as port:
        failed = Client(*await asyncio.open_connection("127.0.0.1", port))
        other = Client(*await asyncio.open_connection("127.0.0.1", port))
        failed.say("GET /fail HTTP/1.1", "host: x")
        answer = await failed.hear_all()
        other.say("GET /other HTTP/1.1", "host: x")

        assert answer.startswith(b"HTTP/1.1 200" if has_begun else b"HTTP/1.1 500")
        assert not answer.endswith(b"0\r\n\r\n")
        assert await other.hear(b"GET /other  ")
        failed.writer.close()
        other.writer.close()


@pytest.mark.parametrize("value", [b"a\r\nset-cookie: b", b"a\x00b"])
async def test_a_header_cannot_smuggle_in_another_one(value: bytes) -> None:
    async def smuggle(scope: Scope, _: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": [(b"x-from-user", value)]})

    async with talking(smuggle) as client:
        client.say("GET / HTTP/1.1", "host: x")

        assert (await client.hear_all()).startswith(b"HTTP/1.1 500")


async def test_a_body_that_is_not_as_long_as_announced_is_broken_off() -> None:
    async def lie(scope: Scope, _: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"9")]})
            await send({"type": "http.response.body", "body": b"four"})

    async with talking(lie) as client:
        client.say("GET / HTTP/1.1", "host: x")

        assert (await client.hear_all()).startswith(b"HTTP/1.1 500")


async def test_an_application_hears_that_its_client_is_gone() -> None:
    heard: list[str] = []

    async def listen(scope: Scope, receive: Receive, _: Send) -> None:
        if scope["type"] == "http":
            lane = lane_of(scope)
            assert lane is not None
            lane.when_gone(lambda: heard.append("lane"))
            heard.append((await receive())["type"])
            heard.append((await receive())["type"])

    async with talking(listen) as client:
        client.say("GET / HTTP/1.1", "host: x")
        await eventually(lambda: is_true(heard == ["http.request"]))
        client.writer.close()

        await eventually(lambda: is_true(sorted(heard) == ["http.disconnect", "http.request", "lane"]))


async def test_a_client_that_does_not_read_holds_up_who_writes_to_it() -> None:
    written = 0

    async def pour(scope: Scope, _: Receive, send: Send) -> None:
        nonlocal written
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200})
            while True:
                await send({"type": "http.response.body", "body": b"x" * 100_000, "more_body": True})
                written += 1

    async with talking(pour) as client:
        client.say("GET / HTTP/1.1", "host: x")
        before = -1

        async def has_stopped() -> bool:
            nonlocal before
            stopped, before = before == written > 0, written
            return stopped

        await eventually(has_stopped)
        await client.reader.readexactly(1_000_000)
        await eventually(lambda: is_true(written > before))


async def is_true(what: bool) -> bool:
    return what
