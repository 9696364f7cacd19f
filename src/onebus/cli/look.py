"""`onebus tail`, `peek`, `count` and `queues`: what is in the queues, without taking anything out."""

from typing import TYPE_CHECKING, Annotated

import typer

from onebus.cli.options import DEFAULT_TTL_SECONDS, AsJson, QueueName, Stores

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onebus.bus import Bus
    from onebus.objects.queues import QueueState

Lines = Annotated[int, typer.Option("-n", "--lines", min=0, metavar="N", help="How many messages.")]

_COLUMNS = ("waiting", "held", "dead", "delayed")


def tail(
    queue: QueueName,
    *,
    stores: Stores = None,
    lines: Lines = 10,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with messages as they come.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print the newest messages of a queue, and leave them there.

    With --follow it goes on until Ctrl-C. Messages that are consumed before it sees them are not shown.

    Example: onebus tail jobs -n 3 --follow
    """
    from onebus.cli.session import run

    run(_tail(stores, queue, lines=lines, follow=follow, as_json=as_json))


def peek(
    queue: QueueName,
    *,
    stores: Stores = None,
    lines: Lines = 1,
    as_json: AsJson = False,
) -> None:
    """Print the messages that would be consumed next, and leave them there.

    Example: onebus peek jobs -n 3 --json
    """
    from onebus.cli.session import run

    run(_peek(stores, queue, lines=lines, as_json=as_json))


def count(queue: QueueName, *, stores: Stores = None, as_json: AsJson = False) -> None:
    """Print how many messages of a queue wait to be consumed.

    Example: onebus count jobs
    """
    from onebus.cli.session import run

    run(_count(stores, queue, as_json=as_json))


def queues(
    prefix: Annotated[str, typer.Argument(help="Only queues whose names begin so.")] = "",
    *,
    stores: Stores = None,
    as_json: AsJson = False,
) -> None:
    """List the queues, with what is in them.

    waiting: to be consumed now. held: with a consumer, or waiting for another try. dead: given up. delayed: waiting
    for their time. ttl: how long the queue lives when nobody is attached; - if it has ended and only dead or delayed
    messages are left of it.

    Example: onebus queues jobs-
    """
    from onebus.cli.session import run

    run(_queues(stores, prefix, as_json=as_json))


async def _tail(stores: "Sequence[str] | None", name: str, *, lines: int, follow: bool, as_json: bool) -> None:
    from contextlib import aclosing

    from onebus.cli.session import attached, existing, open_bus
    from onebus.cli.shown import message_line
    from onebus.cli.stdout import Stdout

    stdout = Stdout()
    async with open_bus(stores) as bus:
        waiting = await existing(bus, name)
        async with attached(bus, name, ttl=await waiting.ttl() or DEFAULT_TTL_SECONDS) as queue:
            index = -lines if lines else await _size(bus, name)
            async with aclosing(queue.consume(remove=False, index=index, wait=follow)) as messages:
                async for message in messages:
                    await stdout.write(message_line(message, as_json=as_json))


async def _size(bus: "Bus", name: str) -> int:
    return sum(state.waiting + state.held for state in await bus.queues(name) if state.name == name)


async def _peek(stores: "Sequence[str] | None", name: str, *, lines: int, as_json: bool) -> None:
    from onebus.cli.session import existing, open_bus
    from onebus.cli.shown import message_line
    from onebus.cli.stdout import Stdout

    stdout = Stdout()
    async with open_bus(stores) as bus:
        queue = await existing(bus, name)
        for message in await queue.peek(lines):
            await stdout.write(message_line(message, as_json=as_json))


async def _count(stores: "Sequence[str] | None", name: str, *, as_json: bool) -> None:
    from onebus.cli.session import existing, open_bus
    from onebus.cli.shown import object_line
    from onebus.cli.stdout import Stdout

    async with open_bus(stores) as bus:
        waiting = await (await existing(bus, name)).count()
    await Stdout().write(object_line({"name": name, "waiting": waiting}) if as_json else b"%d" % waiting)


async def _queues(stores: "Sequence[str] | None", prefix: str, *, as_json: bool) -> None:
    from onebus.cli.session import open_bus
    from onebus.cli.shown import object_line
    from onebus.cli.stdout import Stdout

    async with open_bus(stores) as bus:
        states = await bus.queues(prefix)
    stdout = Stdout()
    for line in [object_line(state) for state in states] if as_json else _table(states):
        await stdout.write(line)


def _table(states: "Sequence[QueueState]") -> list[bytes]:
    from onebus.cli.table import table

    rows: list[tuple[str, ...]] = [("name", *_COLUMNS, "ttl")]
    rows += [
        (state.name, *(str(getattr(state, column)) for column in _COLUMNS), _duration(state.ttl)) for state in states
    ]
    return table(rows)


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    if not seconds:
        return "for ever"
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:g} s"
