"""The examples of the web door serve what their text says."""

import asyncio
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import running
from tests.examples.test_examples import EXAMPLES
from tests.services import Server
from tests.web.server import WebServer


class ExampleServer(Server):
    """An example that serves a store until it is stopped."""

    def __init__(self, example: str, store: str) -> None:
        super().__init__()
        self._example = example
        self._store = store

    def command(self) -> Sequence[str]:
        return [sys.executable, str(EXAMPLES / self._example), self._store, str(self.port)]

    def is_ready(self) -> bool:
        return "running on" in self.log_file.read_text()


@contextmanager
def example(name: str, folder: Path) -> Iterator[WebServer]:
    with running(ExampleServer(name, f"sqlite:///{folder}/bus.db")) as server:
        yield WebServer(server.port)


@pytest.fixture
def starlette(tmp_path: Path) -> Iterator[WebServer]:
    with example("web_starlette.py", tmp_path) as web:
        yield web


@pytest.fixture
def django(tmp_path: Path) -> Iterator[WebServer]:
    with example("web_django.py", tmp_path) as web:
        yield web


async def test_with_starlette_whoever_follows_the_chat_hears_what_is_said(starlette: WebServer) -> None:
    page = await starlette.get("/")
    async with starlette.poll({"/chat": 0}) as held, starlette.poll({"/secret": 0}) as reply:
        assert await held.frame() == []
        denied = await reply.whole()
        answer = await starlette.post_json("/say", {"text": "hi"})

        assert await held.data() == [{"text": "hi"}]
    assert b"EventSource" in page.body
    assert answer.json == {"id": 1}
    assert (denied.status, denied.error_code) == (403, "channel_denied")


async def test_with_django_only_the_user_who_ordered_hears_of_the_order(django: WebServer) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    async with django.poll({"/orders": 0}, headers={"Cookie": "a=b; name=ann"}) as held:
        assert await held.frame() == []
        for name, item in (("ben", "pen"), ("ann", "book")):
            ordered = await django.request(
                "POST", "/order", body=f"item={item}".encode(), headers={"Cookie": f"name={name}", **form}
            )
            assert ordered.status == 200

        assert await held.data() == ["book is on its way"]


async def test_clients_that_are_held_do_not_keep_a_server_from_stopping(tmp_path: Path) -> None:
    server = ExampleServer("web_starlette.py", f"sqlite:///{tmp_path}/bus.db")
    with running(server):
        async with WebServer(server.port).poll({"/chat": 0}) as held:
            await held.frame()

            async with asyncio.timeout(10):
                await asyncio.to_thread(server.stop, 10)
