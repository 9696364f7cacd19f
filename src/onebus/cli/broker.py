"""`onebus broker`: the bus for clients of raintank-queue."""

from typing import TYPE_CHECKING, Annotated

import typer

from onebus.cli.options import Stores
from onebus.errors import MissingDriver

if TYPE_CHECKING:
    from collections.abc import Sequence


def broker(
    *,
    store: Stores = None,
    consumers: Annotated[str, typer.Option(metavar="ADDRESS", help="Where consumers get messages.")] = (
        "tcp://127.0.0.1:9998"
    ),
    publishers: Annotated[
        str,
        typer.Option(metavar="ADDRESS", help="Where publishers send messages; the port before it gives receipts."),
    ] = "tcp://127.0.0.1:9997",
    management: Annotated[str, typer.Option(metavar="URL", help="Where consumers join groups.")] = (
        "http://127.0.0.1:9999"
    ),
    flush_interval: Annotated[
        float, typer.Option(min=0.001, metavar="SECONDS", help="How long messages gather before they are sent.")
    ] = 0.1,
    partitions: Annotated[int, typer.Option(min=1, help="How many partitions new topics have.")] = 10,
    max_age: Annotated[
        float | None,
        typer.Option(min=1, metavar="SECONDS", help="How long the messages of new topics are kept; else for ever."),
    ] = None,
    start: Annotated[str, typer.Option(metavar="end|beginning", help="Where a group that is new begins.")] = "end",
    secret: Annotated[
        str,
        typer.Option(
            envvar="ONEBUS_SECRET",
            show_envvar=True,
            help="What publishers and consumers have to know; nobody else can use the sockets. Others can see the "
            "arguments of a program: better set the variable.",
        ),
    ] = "",
    open_sockets: Annotated[
        bool,
        typer.Option(
            "--open-sockets",
            help="Let plain clients use the sockets without the secret: for networks that are trusted.",
        ),
    ] = False,
) -> None:
    """Serve publishers and consumers of raintank-queue until Ctrl-C.

    They need not be changed. Messages are stored in topics before they are sent, and each group goes on where it was.

    Example: onebus broker --store sqlite:///bus.db --partitions 20
    """
    from onebus.cli.session import run

    try:
        import uvloop

        import onebus.zmq  # noqa: F401
    except ImportError:
        raise MissingDriver("onebus broker needs ZeroMQ and Socket.IO. Run: pip install 'onebus[zmq]'") from None
    run(
        _serve(
            store,
            consumer_socket_addr=consumers,
            publisher_socket_addr=publishers,
            mgmt_url=management,
            flush_interval=flush_interval,
            partitions=partitions,
            max_age=max_age,
            start=start,
            secret=secret,
            open_sockets=open_sockets,
        ),
        loop_factory=uvloop.new_event_loop,
    )


async def _serve(
    stores: "Sequence[str] | None",
    *,
    consumer_socket_addr: str,
    publisher_socket_addr: str,
    mgmt_url: str,
    flush_interval: float,
    partitions: int,
    max_age: float | None,
    start: str,
    secret: str,
    open_sockets: bool,
) -> None:
    from onebus.bus import DEFAULT_URL
    from onebus.cli.output import redacted
    from onebus.cli.session import create_bus
    from onebus.heap import keep_freed_memory
    from onebus.log.retention import Retention
    from onebus.zmq import Broker

    keep_freed_memory()
    bus = create_bus(stores)
    # Before the store is opened: whatever is refused leaves nothing behind.
    broker = Broker(
        bus,
        consumer_socket_addr,
        publisher_socket_addr,
        mgmt_url,
        flush_interval=flush_interval,
        partitions=partitions,
        retention=Retention(max_age_seconds=max_age),
        start=start,
        secret=secret,
        open_sockets=open_sockets,
    )
    async with bus, broker:
        typer.echo(f"onebus is a broker at {mgmt_url} for {redacted(', '.join(stores or [DEFAULT_URL]))}; Ctrl-C ends.")
        await broker.wait()
