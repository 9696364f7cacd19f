"""`onebus publish-signal` and `listen`: for those who are there now; nothing is kept."""

from typing import TYPE_CHECKING, Annotated

import typer

from onebus.cli.options import AsJson, DataIsJson, PublishedData, Stores, arguments_or_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

Name = Annotated[str, typer.Argument(metavar="NAME", help="What is published to and listened to.")]


def publish_signal(
    name: Name,
    data: PublishedData = None,
    *,
    stores: Stores = None,
    as_json: DataIsJson = False,
) -> None:
    """Publish data to all who listen now, and print how many clients received it.

    A line with the number is printed for each piece of data.

    Example: onebus publish-signal news 'it is raining'
    """
    from onebus.cli.session import run

    given = arguments_or_lines(data, "signal")
    if not run(_publish(stores, name, given, as_json=as_json)):
        raise typer.Exit(1)


def listen(
    name: Name,
    *,
    stores: Stores = None,
    most: Annotated[int | None, typer.Option("--max", min=1, metavar="N", help="End after N.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print what is published from now on, one per line, until Ctrl-C.

    That it listens is told on stderr. With --json each line is an object with data; bytes that are not UTF-8 are
    base64 there, and "encoding" says so.

    Example: onebus listen news --max 1
    """
    from onebus.cli.session import run

    run(_listen(stores, name, most=most, as_json=as_json))


async def _publish(stores: "Sequence[str] | None", name: str, given: "Sequence[str] | None", *, as_json: bool) -> bool:
    from onebus.cli.publishing import number_line, publish_pieces
    from onebus.cli.session import open_bus

    async with open_bus(stores) as bus:
        return await publish_pieces(
            given, bus.pubsub(name).publish, as_json=as_json, line=number_line("receivers", as_json=as_json)
        )


async def _listen(stores: "Sequence[str] | None", name: str, *, most: int | None, as_json: bool) -> None:
    import asyncio

    from onebus.cli.session import note, open_bus, report
    from onebus.cli.shown import data_line
    from onebus.cli.stdout import Stdout

    stdout, printed = Stdout(), 0
    # One at a time: whoever reads slowly is told what was missed, instead of filling the memory.
    heard: asyncio.Queue[object] = asyncio.Queue(maxsize=1)
    async with open_bus(stores) as bus:
        pubsub = bus.pubsub(name)
        pubsub.on("error", report)
        pubsub.on("message", heard.put)
        await pubsub.subscribe()
        note(f"listening to {name}")
        while printed != most:
            await stdout.write(data_line(await heard.get(), as_json=as_json))
            printed += 1
