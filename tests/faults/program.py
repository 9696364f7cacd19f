"""A program of `programs.py` running as a process, with its lines arriving here."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]


class Program:
    """Reads what the process prints; kills it at the latest when the test ends."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.lines: list[list[str]] = []
        self._arrived = asyncio.Condition()
        self._reading = asyncio.create_task(self._read())

    async def line(self, first_word: str, *, after: int = 0, deadline_seconds: float = 30.0) -> list[str]:
        """Return the first line, of those after number `after`, that starts with a word; wait until it comes."""
        async with asyncio.timeout(deadline_seconds), self._arrived:
            while True:
                for line in self.lines[after:]:
                    if line[0] == first_word:
                        return line
                if self._reading.done():
                    raise AssertionError(f"the program ended without saying {first_word!r}: {self.lines[-3:]}")
                await self._arrived.wait()

    async def said(self, first_word: str, count: int, *, deadline_seconds: float = 30.0) -> None:
        """Return once `count` lines start with a word."""
        async with asyncio.timeout(deadline_seconds), self._arrived:
            while sum(line[0] == first_word for line in self.lines) < count:
                if self._reading.done():
                    raise AssertionError(f"the program ended: {self.lines[-3:]}")
                await self._arrived.wait()

    def signal(self, number: signal.Signals) -> None:
        os.kill(self._process.pid, number)

    async def kill(self) -> None:
        """End the process at once, and read all it had said."""
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        await self._reading

    async def wait(self) -> int:
        await self._reading
        return await self._process.wait()

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for raw in self._process.stdout:
            # The last line of a killed process may be cut.
            if raw.endswith(b"\n"):
                async with self._arrived:
                    self.lines.append(raw.decode().split())
                    self._arrived.notify_all()
        async with self._arrived:
            self._arrived.notify_all()


@asynccontextmanager
async def running_program(name: str, url: str, log: str) -> AsyncIterator[Program]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.faults.programs",
        name,
        url,
        log,
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
        limit=10 * 1024 * 1024,
    )
    program = Program(process)
    try:
        yield program
    finally:
        await program.kill()
