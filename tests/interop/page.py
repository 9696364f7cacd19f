"""A page with the npm package message-bus-client, in Node.js."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from tests.faults.program import Program
from tests.services.npm import install_packages, node

FOLDER: Final = Path(__file__).parent


def install() -> None:
    """Install what pages need, unless it is there."""
    install_packages(FOLDER)


@asynccontextmanager
async def page(address: str, transport: str, channel: str) -> AsyncIterator[Program]:
    """Open a page that tells what it gets from a server; see page.js."""
    command = node(str(FOLDER / "page.js"), address, transport, channel)
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, cwd=FOLDER)
    program = Program(process)
    try:
        yield program
    finally:
        await program.kill()
