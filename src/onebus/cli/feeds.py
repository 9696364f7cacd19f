"""`onebus publish` and `subscribe`: messages for whoever follows a channel, now or a little later."""

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from onebus.cli.options import AsJson, DataIsJson, PublishedData, Stores, arguments_or_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

Channel = Annotated[str, typer.Argument(metavar="CHANNEL", help="A path such as /chat.")]


def publish(
    channel: Channel,
    data: PublishedData = None,
    *,
    stores: Stores = None,
    as_json: DataIsJson = False,
) -> None:
    """Publish data on a channel, and print the id of each message in its channel.

    Example: onebus publish /chat 'hello, world'
    """
    from onebus.cli.session import run

    given = arguments_or_lines(data, "message")
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
    from onebus.cli.publishing import number_line, publish_pieces
    from onebus.cli.session import open_bus

    async with open_bus(stores) as bus:
        return await publish_pieces(
            given, partial(bus.publish, channel), as_json=as_json, line=number_line("message_id", as_json=as_json)
        )


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
