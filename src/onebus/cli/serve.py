"""`onebus serve`: the bus as a web server on this machine."""

import socket
from typing import TYPE_CHECKING, Annotated, Final

import typer

from onebus.cli.output import redacted
from onebus.errors import InvalidArgument, MissingDriver

if TYPE_CHECKING:
    import uvicorn

    from onebus.bus import Bus

HOST: Final = "127.0.0.1"


def serve(
    *,
    store: Annotated[str, typer.Option(metavar="URL", help="Where the messages are kept.")] = "sqlite:///onebus.db",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port on 127.0.0.1; 0 takes a free one.")] = 8080,
) -> None:
    """Serve the bus to this machine until Ctrl-C.

    /healthz tells whether the store can be reached: 200 if it can, 503 if not.
    """
    import asyncio

    try:
        import uvicorn
    except ImportError:
        raise MissingDriver("onebus serve needs a web server. Run: pip install 'onebus[web]'") from None
    from onebus.bus import Bus
    from onebus.web import app

    bus = Bus(store)
    config = uvicorn.Config(app(bus), lifespan="on", log_level="warning", access_log=False)
    with _listen(port) as listener, asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(_run(uvicorn.Server(config), bus, listener))


async def _run(server: "uvicorn.Server", bus: "Bus", listener: socket.socket) -> None:
    # Opened here already, so that an absent store is one error line and not a failure of the web server.
    async with bus:
        typer.echo(
            f"onebus serves http://{HOST}:{listener.getsockname()[1]} from {redacted(str(bus.url))}; Ctrl-C ends."
        )
        await server.serve(sockets=[listener])


def _listen(port: int) -> socket.socket:
    try:
        return socket.create_server((HOST, port))
    except OSError as error:
        raise InvalidArgument(f"Port {port} of {HOST} cannot be used: {error.strerror}. Give another --port.") from None
