"""A process that is forked while a bus is connected: the connection stays with the parent."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import running
from tests.services import RedisServer

PROGRAM = """
import asyncio, os, sys
from onebus import Bus
from onebus.errors import UsedAfterFork

url = sys.argv[1]
loop = asyncio.new_event_loop()
bus = Bus(url)

async def begin():
    await bus.connect()
    await bus.publish("/chat", "before")

loop.run_until_complete(begin())

async def in_child():
    for use in (lambda: bus.publish("/chat", "lost"), lambda: bus.backlog("/chat"), bus.connect):
        try:
            await use()
        except UsedAfterFork as error:
            print(error.code, flush=True)
    await bus.disconnect()
    async with Bus(url) as own:
        await own.publish("/chat", "from the child")

child = os.fork()
if child == 0:
    asyncio.run(in_child())
    os._exit(0)
os.waitpid(child, 0)

async def in_parent():
    await bus.publish("/chat", "after")
    print([message.data for message in await bus.backlog("/chat")])
    await bus.disconnect()

loop.run_until_complete(in_parent())
"""


def run(url: str) -> list[str]:
    program = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", PROGRAM, url]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    return done.stdout.splitlines()


EXPECTED = [*3 * ["used_after_fork"], "['before', 'from the child', 'after']"]


def test_a_forked_process_leaves_the_connection_to_its_parent(tmp_path: Path) -> None:
    assert run(f"sqlite:///{tmp_path}/bus.db") == EXPECTED


@pytest.mark.xdist_group("redis")
def test_a_forked_process_leaves_the_sockets_to_its_parent() -> None:
    with running(RedisServer()) as redis:
        assert run(redis.url) == EXPECTED
