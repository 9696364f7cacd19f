"""`onebus publish` and `subscribe`: messages for whoever follows a channel, now or a little later."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from onebus.cli.options import AsJson, Stores
from onebus.cli.output import print_error

if TYPE_CHECKING:
    from collections.abc import Sequence

Channel = Annotated[str, typer.Argument(metavar="CHANNEL", help="A path such as /chat.")]


def publish(
    channel: Channel,
    data: Annotated[
        list[str] | None,
        typer.Argument(metavar="DATA", help="What to publish; without it, or with -, each line of stdin."),
    ] = None,
    *,
    stores: Stores = None,
    as_json: Annotated[bool, typer.Option("--json", help="The data is JSON, and so is what is printed.")] = False,
) -> None:
    """Publish data on a channel, and print the id of each message in its channel.

    Example: onebus publish /chat 'hello, world'
    """
    from onebus.cli.session import run

    given = None if not data or data == ["-"] else data
    if given is None and sys.stdin.isatty():
        typer.echo("Type one message per line; Ctrl-D ends.", err=True)
    if not run(_publish(stores, channel, given, as_json=as_json)):
        raise typer.Exit(1)


def subscribe(
    channel: Annotated[
        str | None, typer.Argument(metavar="CHANNEL", help="A path such as /chat; without it, all channels.")
    ] = None,
    *,
    stores: Stores = None,
    last_id: Annotated[
        int,
        typer.Option(
            metavar="ID",
            help="The message that was read last: 0 begins with all that is remembered, -1 with what comes now, "
            "-2 with the newest one, and so on.",
        ),
    ] = -1,
    most: Annotated[int | None, typer.Option("--max", min=1, metavar="N", help="End after N.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print the messages of a channel, one per line, until Ctrl-C.

    That it has subscribed is told on stderr. With --json each line is an object with channel, ids and data.

    Example: onebus subscribe /chat --last-id 0
    """
    from onebus.cli.session import run

    run(_subscribe(stores, channel, last_id, most=most, as_json=as_json))


async def _publish(
    stores: "Sequence[str] | None", channel: str, given: "Sequence[str] | None", *, as_json: bool
) -> bool:
    from onebus.cli.input import data_of, pieces, place
    from onebus.cli.session import open_bus
    from onebus.cli.shown import object_line
    from onebus.cli.stdout import Stdout
    from onebus.errors import InvalidArgument

    stdout = Stdout()
    number, is_good = 0, True
    async with open_bus(stores) as bus:
        async for some in pieces(given):
            published = []
            for piece in some:
                number += 1
                try:
                    published.append(bus.publish(channel, data_of(piece, is_json=as_json)))
                except InvalidArgument as error:
                    print_error(error, place(number, given))
                    is_good = False
            for receipt in published:
                message_id = await receipt
                await stdout.write(object_line({"message_id": message_id}) if as_json else b"%d" % message_id)
    return is_good


async def _subscribe(
    stores: "Sequence[str] | None", channel: str | None, last_id: int, *, most: int | None, as_json: bool
) -> None:
    from onebus.cli.session import note, open_bus, report
    from onebus.cli.shown import feed_line
    from onebus.cli.stdout import Stdout
    from onebus.errors import MessagesMissed

    stdout, printed = Stdout(), 0
    async with open_bus(stores) as bus, bus.subscribe(channel, last_id=last_id) as messages:
        note(f"subscribed to {channel or 'all channels'}")
        while printed != most:
            try:
                message = await anext(messages)
            except MessagesMissed as error:
                report(error)
                continue
            await stdout.write(feed_line(message, as_json=as_json))
            printed += 1
