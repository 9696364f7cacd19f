"""The fixtures for users, as docs/testing.md shows them, in a pytest of their own."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from onebus import Bus
from onebus.sync import Bus as SyncBus
from onebus.testing import FakeClock, memory_bus

DOCUMENT = Path(__file__).parents[2] / "docs" / "testing.md"


def run(tests: str, folder: Path, *options: str) -> str:
    (folder / "test_mine.py").write_text(tests)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-W",
            "error",
            "-c",
            "/dev/null",
            "--confcutdir",
            folder,
            *options,
            folder,
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_tests_of_the_document_pass(tmp_path: Path) -> None:
    examples = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    tests = "\n\n".join(example for example in examples if "def test_" in example)

    shown = run(tests, tmp_path, "-o", "asyncio_mode=auto", "-o", "asyncio_default_fixture_loop_scope=function")

    assert "2 passed" in shown


def test_the_async_fixture_works_in_strict_mode(tmp_path: Path) -> None:
    tests = """
import pytest

@pytest.mark.asyncio
async def test_push(onebus_bus):
    async with onebus_bus.queue("jobs") as queue:
        assert await queue.push(1) == 1
"""
    shown = run(tests, tmp_path, "-o", "asyncio_mode=strict", "-o", "asyncio_default_fixture_loop_scope=function")

    assert "1 passed" in shown


def test_blocking_tests_need_no_pytest_asyncio(tmp_path: Path) -> None:
    tests = """
def test_push(onebus_sync_bus, onebus_clock):
    with onebus_sync_bus.queue("jobs") as queue:
        queue.push(1)
        assert next(queue.consume()).time_ms == onebus_clock.now_ms
"""
    shown = run(tests, tmp_path, "-p", "no:asyncio")

    assert "1 passed" in shown


async def test_the_buses_of_a_test_share_a_memory(
    onebus_bus: Bus, onebus_sync_bus: SyncBus, onebus_url: str, onebus_clock: FakeClock
) -> None:
    assert onebus_bus.url == onebus_sync_bus.url == onebus_url

    async with onebus_bus.queue("jobs", ttl=7200) as queue:
        await queue.push("hello")
        assert await onebus_bus.queue("jobs").count() == 1
        await queue.push("in an hour", delay=3600)
        onebus_clock.advance(3600)
        assert [message.data async for message in queue.consume(max=2)] == ["hello", "in an hour"]


async def test_a_memory_is_of_its_own_or_shared() -> None:
    clock = FakeClock()
    async with memory_bus(clock=clock) as bus, memory_bus() as stranger, Bus(bus.url) as client:
        async with bus.queue("jobs") as queue:
            await queue.push(1)

        assert await client.queue("jobs").exists()
        assert not await stranger.queue("jobs").exists()


@pytest.mark.parametrize("module", ["onebus", "onebus.sync", "onebus.testing"])
def test_pytest_is_not_needed_to_use_the_bus(module: str) -> None:
    program = f"import sys, {module}; assert 'pytest' not in sys.modules"

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_the_plugin_does_not_load_the_bus() -> None:
    program = "import sys, onebus.testing.plugin; assert 'onebus.bus' not in sys.modules"

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
