"""`onebus dead` and `redrive`: messages that could not be handled, and their second chance."""

from typing import TYPE_CHECKING, Annotated

import typer

from onebus.cli.options import DEFAULT_TTL_SECONDS, AsJson, QueueName, Stores, Ttl

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onebus.bus import Bus


def dead(
    queue: QueueName,
    *,
    stores: Stores = None,
    lines: Annotated[int, typer.Option("-n", "--lines", min=1, metavar="N", help="How many, oldest first.")] = 100,
    as_json: AsJson = False,
) -> None:
    """Print the dead letters of a queue, oldest first, and leave them there.

    A line holds the id, how often the message was tried, the reason and the data, with tabs between them.

    Example: onebus dead jobs -n 5
    """
    from onebus.cli.session import run

    run(_dead(stores, queue, lines=lines, as_json=as_json))


def redrive(
    queue: QueueName,
    *,
    stores: Stores = None,
    most: Annotated[int | None, typer.Option("--max", min=1, metavar="N", help="At most N, oldest first.")] = None,
    as_json: AsJson = False,
    ttl: Ttl = DEFAULT_TTL_SECONDS,
) -> None:
    """Push the dead letters of a queue to it once more, and print how many.

    Example: onebus redrive jobs --max 10
    """
    from onebus.cli.session import run

    run(_redrive(stores, queue, ttl, most=most, as_json=as_json))


async def _dead(stores: "Sequence[str] | None", name: str, *, lines: int, as_json: bool) -> None:
    from onebus.cli.session import open_bus
    from onebus.cli.shown import letter_line
    from onebus.cli.stdout import Stdout

    stdout = Stdout()
    async with open_bus(stores) as bus:
        await _check_exists(bus, name)
        for letter in await bus.queue(name).dead.list(lines):
            await stdout.write(letter_line(letter, as_json=as_json))


async def _redrive(stores: "Sequence[str] | None", name: str, ttl: float, *, most: int | None, as_json: bool) -> None:
    from onebus.cli.session import attached, open_bus
    from onebus.cli.shown import object_line
    from onebus.cli.stdout import Stdout

    async with open_bus(stores) as bus:
        await _check_exists(bus, name)
        async with attached(bus, name, ttl=ttl) as queue:
            redriven = await queue.redrive(most)
    await Stdout().write(object_line({"name": name, "redriven": redriven}) if as_json else b"%d" % redriven)


async def _check_exists(bus: "Bus", name: str) -> None:
    """Dead letters may outlive their queue, so they are enough."""
    from onebus.cli.session import existing

    if not await bus.queue(name).dead.count():
        await existing(bus, name)
