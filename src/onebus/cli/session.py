"""One command at work: the bus it uses, and the ways in which it may be ended.

Ctrl-C, SIGTERM and a reader of stdout that has gone all cancel the command, which then gives back what it has in hand.
"""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

import typer

from onebus.bus import DEFAULT_URL, Bus
from onebus.cli.output import print_error
from onebus.cli.stdout import tell_when_reader_is_gone
from onebus.errors import BusError
from onebus.objects.queue import Queue

T = TypeVar("T")
LoopFactory = Callable[[], asyncio.AbstractEventLoop]

TERMINATED: Final = 128 + signal.SIGTERM
READER_GONE: Final = 0
"""Whoever reads the output has seen enough: that is no failure."""


def run(work: Coroutine[Any, Any, T], *, loop_factory: LoopFactory | None = None) -> T:
    """Run a command to its end, and leave with the fitting exit code when it is ended from outside."""
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(_until_ended(work))


async def _until_ended(work: Coroutine[Any, Any, T]) -> T:
    loop = asyncio.get_running_loop()
    working = asyncio.current_task()
    codes: list[int] = []

    def end(code: int) -> None:
        codes.append(code)
        if working is not None:
            working.cancel()

    loop.add_signal_handler(signal.SIGTERM, end, TERMINATED)
    forget = tell_when_reader_is_gone(lambda: end(READER_GONE))
    try:
        return await work
    except BrokenPipeError:
        raise typer.Exit(READER_GONE) from None
    except asyncio.CancelledError:
        if not codes:
            raise
        raise typer.Exit(codes[0]) from None
    finally:
        forget()
        loop.remove_signal_handler(signal.SIGTERM)


@asynccontextmanager
async def open_bus(urls: Sequence[str] | None) -> AsyncIterator[Bus]:
    """Connect to the stores of the command; what goes wrong in the background is a line on stderr."""
    async with create_bus(urls) as bus:
        yield bus


def create_bus(urls: Sequence[str] | None) -> Bus:
    """Return the bus of a command, not connected yet; what goes wrong in the background is a line on stderr."""
    given = list(urls or ())
    bus = Bus(given[0] if len(given) == 1 else given or DEFAULT_URL)
    bus.on("error", report)
    return bus


@asynccontextmanager
async def attached(bus: Bus, name: str, *, ttl: float) -> AsyncIterator[Queue]:
    """Attach to a queue, and create it if there is none."""
    queue = bus.queue(name, ttl=ttl)
    queue.on("error", report)
    async with queue:
        yield queue


async def existing(bus: Bus, name: str) -> Queue:
    """Return a queue that exists, without attaching to it.

    Raises:
        NoSuchQueue: there is none.
    """
    queue = bus.queue(name)
    if not await queue.exists():
        raise NoSuchQueue(name)
    return queue


class NoSuchQueue(BusError):
    """Nobody has created this queue, or its time to live has run out."""

    code = "no_such_queue"

    def __init__(self, name: str) -> None:
        super().__init__(f"There is no queue {name!r}. `onebus queues` lists those that exist.")


def report(error: object) -> None:
    """Print what went wrong in the background."""
    if isinstance(error, BusError):
        print_error(error)
    else:
        typer.secho(f"error: {error}", fg="red", err=True)


def note(text: str) -> None:
    """Say something to the person at the terminal, beside what goes to stdout."""
    print(text, file=sys.stderr, flush=True)  # noqa: T201
