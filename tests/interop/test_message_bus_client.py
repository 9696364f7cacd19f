"""The client of message_bus as it comes from npm, against `onebus serve`."""

import asyncio
import json
import os
from pathlib import Path

import pytest

from onebus import Bus
from tests.conftest import needing, running
from tests.interop.page import page
from tests.interop.script import FOLDER, install
from tests.services import MissingService, OnebusServer, RedisServer, ServiceFailed

pytestmark = pytest.mark.xdist_group("interop")

JSON = "application/json;charset=utf-8"
STREAM = "text/plain;charset=utf-8"

ANSWERS = {
    "streaming": ["200", "false", STREAM],
    "long-polling": ["200", "false", JSON],
    "polling": ["200", "true", JSON],
}
"""What the server answers to each transport."""


@pytest.fixture(scope="module")
def _installed() -> None:
    with needing(MissingService, ServiceFailed):
        install()


@pytest.fixture(params=["sqlite", "redis"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/bus.db"
    redis: RedisServer = request.getfixturevalue("redis")
    return redis.url


@pytest.mark.usefixtures("_installed")
async def test_all_messages_arrive_once_and_in_order_while_the_server_is_killed_and_started_again(store: str) -> None:
    async with Bus(store) as bus:
        channels = {transport: f"/interop/{os.urandom(4).hex()}" for transport in ANSWERS}

        async def publish(start: int, stop: int) -> None:
            for number in range(start, stop):
                for channel in channels.values():
                    await bus.publish(channel, {"number": number})
                await asyncio.sleep(0.005)

        with running(OnebusServer(store)) as server:
            pages = {name: page(server.address, name, channel) for name, channel in channels.items()}
            async with pages["streaming"] as one, pages["long-polling"] as two, pages["polling"] as three:
                await publish(1, 51)
                for program in (one, two, three):
                    await program.said("message", 1)
                await asyncio.to_thread(server.kill)
                await publish(51, 101)
                server.start()
                await asyncio.to_thread(server.wait_ready)
                await publish(101, 151)
                for program in (one, two, three):
                    await program.said("message", 150)

    for name, program in zip(channels, (one, two, three), strict=True):
        told = [line[1:] for line in program.lines if line[0] == "message"]
        answers = [line[1:] for line in program.lines if line[0] == "answer" and line[1] == "200"]
        assert told == [[str(number), f'{{"number":{number}}}'] for number in range(1, 151)], name
        assert all(answer == ANSWERS[name] for answer in answers), name


def test_the_lock_file_pins_every_package_and_names_no_registry() -> None:
    lock = json.loads((FOLDER / "package-lock.json").read_text())

    packages = [package for name, package in lock["packages"].items() if name]
    assert lock["packages"]["node_modules/message-bus-client"]["version"] == "4.5.2"
    assert all("integrity" in package and "resolved" not in package for package in packages)
