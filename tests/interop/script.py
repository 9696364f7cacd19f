"""Scripts of this folder, run by Node.js."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from tests.faults.program import Program
from tests.services.npm import install_packages, node

FOLDER: Final = Path(__file__).parent


def install() -> None:
    """Install what the scripts need, unless it is there."""
    install_packages(FOLDER)


@asynccontextmanager
async def running_script(name: str, *arguments: str) -> AsyncIterator[Program]:
    """Run a script that prints lines."""
    command = node(str(FOLDER / name), *arguments)
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, cwd=FOLDER)
    program = Program(process)
    try:
        yield program
    finally:
        await program.kill()
