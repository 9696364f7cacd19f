"""`onebus serve`: the bus as a web server."""

from typing import TYPE_CHECKING, Annotated

import typer

from onebus.cli.options import Stores
from onebus.cli.output import redacted
from onebus.errors import MissingDriver

if TYPE_CHECKING:
    from onebus.web.server import ServerSettings


def serve(
    *,
    store: Stores = None,
    host: Annotated[str, typer.Option(help="The address to listen on. All but this machine's need a secret.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes a free one.")] = 8080,
    workers: Annotated[int, typer.Option(min=1, help="How many processes serve the port.")] = 1,
    secret: Annotated[
        str,
        typer.Option(
            envvar="ONEBUS_SECRET",
            show_envvar=True,
            help="What whoever uses the server has to know. Others can see the arguments of a program: better set "
            "the variable.",
        ),
    ] = "",
    origin: Annotated[
        list[str] | None,
        typer.Option(metavar="ORIGIN", help="Another origin whose pages may use the server; several times for more."),
    ] = None,
    tls_certificate: Annotated[str | None, typer.Option(metavar="FILE", help="Serve HTTPS, with this.")] = None,
    tls_key: Annotated[str | None, typer.Option(metavar="FILE", help="The key of the certificate.")] = None,
    broadcast: Annotated[bool, typer.Option(help="Whether clients may publish over HTTP.")] = True,
    max_clients: Annotated[int, typer.Option(min=1, help="How many clients each process holds.")] = 20_000,
    long_polling_interval: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="How long a poll is held.")
    ] = 25.0,
    queue: Annotated[str, typer.Option(metavar="QUEUE", help="The queue behind /message/new and /message/next.")] = (
        "messages"
    ),
    pending_timeout: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            metavar="SECONDS",
            envvar="ONEBUS_PENDING_TIMEOUT",
            show_envvar=True,
            help="How long a worker has for a message before another one gets it.  [default: 10]",
        ),
    ] = None,
    max_attempts: Annotated[
        int | None,
        typer.Option(min=1, help="After how many deliveries a message goes to the dead letters; else never."),
    ] = None,
) -> None:
    """Serve the bus over HTTP until Ctrl-C.

    /message-bus/ serves its channels, /message/ and /queues/ its queues, /onebus.js the client for browsers; /healthz
    tells whether the store can be reached, /metrics how much is going on.
    """
    from onebus.bus import DEFAULT_URL

    try:
        from onebus.web.server import ServerSettings
    except ImportError:
        raise MissingDriver("onebus serve needs a web server. Run: pip install 'onebus[web]'") from None
    settings = ServerSettings(
        stores=tuple(store) if store and len(store) > 1 else (store or [DEFAULT_URL])[0],
        host=host,
        port=port,
        workers=workers,
        secret=secret,
        origins=tuple(origin or ()),
        certificate=tls_certificate,
        key=tls_key,
        allow_broadcast=broadcast,
        max_clients=max_clients,
        long_polling_interval=long_polling_interval,
        queue=queue,
        pending_timeout=pending_timeout,
        max_attempts=max_attempts,
    )
    _serve(settings)


def _serve(settings: "ServerSettings") -> None:
    import asyncio

    from onebus.web.server import run
    from onebus.web.workers import Workers

    # So that an absent store is one error line, and not a failure of the web server.
    asyncio.run(_try_store(settings))
    settings, listener = settings.listen()
    with listener:
        stores = settings.stores if isinstance(settings.stores, str) else ", ".join(settings.stores)
        typer.echo(f"onebus serves {settings.address} from {redacted(stores)}; Ctrl-C ends.")
        if settings.workers > 1:
            Workers(settings, listener).run()
        else:
            run(settings, listener)


async def _try_store(settings: "ServerSettings") -> None:
    async with settings.bus():
        return
