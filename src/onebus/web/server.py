"""A web server for a bus: one process, or several that share a port."""

import asyncio
import gc
import resource
import socket
from dataclasses import dataclass, field, replace
from typing import Final

import uvicorn

from onebus.bus import Bus
from onebus.errors import InvalidArgument
from onebus.hosts import is_this_machine
from onebus.web.application import Application, app
from onebus.web.feeds.settings import FeedSettings
from onebus.web.guard import Guard
from onebus.web.queues.settings import QueueSettings
from onebus.web.wire.connection import Connection

BACKLOG: Final = 4096
"""Connections that may wait to be accepted: clients come back all at once after a restart."""
STOPPING_SECONDS: Final = 10
GARBAGE_BEFORE_COLLECTION: Final = 20_000
MAX_FRAME_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """How `onebus serve` serves."""

    stores: str | tuple[str, ...]
    host: str = "127.0.0.1"
    port: int = 8080
    workers: int = 1
    secret: str = field(default="", repr=False)
    origins: tuple[str, ...] = ()
    certificate: str | None = None
    """The path of a file in PEM format; with it the server speaks TLS."""
    key: str | None = None
    allow_broadcast: bool = True
    max_clients: int = 20_000
    """Held at the same time by each worker."""
    long_polling_interval: float = 25.0
    """Seconds for which a poll is held."""
    queue: str = "messages"
    """The queue behind ``/message/…``."""
    pending_timeout: float | None = None
    """Seconds that a worker has for a message; by default what the environment says, or 10."""
    max_attempts: int | None = None
    """After how many deliveries a message goes to the dead letters; None tries for ever."""

    def __post_init__(self) -> None:
        if not self.secret and not is_this_machine(self.host):
            raise InvalidArgument(
                f"Whoever reaches {self.host} could use the bus. Give a --secret, or set ONEBUS_SECRET, to serve there."
            )
        if (self.certificate is None) != (self.key is None):
            raise InvalidArgument("TLS needs both --tls-certificate and --tls-key.")

    @property
    def address(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.certificate else 'http'}://{host}:{self.port}"

    def bus(self) -> Bus:
        return Bus(self.stores)

    def application(self) -> Application:
        """Return what is served.

        Raises:
            InvalidArgument: it cannot be served like this.
        """
        queues = QueueSettings(queue=self.queue, max_attempts=self.max_attempts)
        if self.pending_timeout is not None:
            queues = replace(queues, pending_timeout=self.pending_timeout)
        return app(
            self.bus(),
            feeds=FeedSettings(
                allow_broadcast=self.allow_broadcast,
                max_active_clients=self.max_clients,
                long_polling_interval=self.long_polling_interval,
                origins=self.origins,
            ),
            queues=queues,
            guard=Guard(secret=self.secret, origins=self.origins),
        )

    def listen(self) -> tuple["ServerSettings", socket.socket]:
        """Take the port, and return it with these settings, which then name it even if any port was good.

        Raises:
            InvalidArgument: it cannot be had.
        """
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        try:
            listener = socket.create_server((self.host, self.port), family=family, backlog=BACKLOG)
        except OSError as error:
            text = f"Port {self.port} of {self.host} cannot be used: {error.strerror}. Give another --port."
            raise InvalidArgument(text) from None
        return replace(self, port=listener.getsockname()[1]), listener


def run(settings: ServerSettings, listener: socket.socket) -> None:
    """Serve until a signal ends it; then whoever is held gets an answer."""
    _allow_many_connections()
    application = settings.application()
    # What lives as long as the server need not be looked at again and again, and requests leave little garbage.
    gc.freeze()
    gc.set_threshold(GARBAGE_BEFORE_COLLECTION, 20, 20)
    server = WebServer(application, settings)
    with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
        runner.run(server.serve(sockets=[listener]))


class WebServer(uvicorn.Server):
    """Serves an application, and lets it answer whoever is held before it stops."""

    def __init__(self, application: Application, settings: ServerSettings) -> None:
        self._application = application
        super().__init__(
            uvicorn.Config(
                application,
                http=Connection,
                ws="websockets-sansio",
                ws_max_size=MAX_FRAME_BYTES,
                ws_per_message_deflate=False,
                lifespan="on",
                log_level="warning",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=60,
                timeout_graceful_shutdown=STOPPING_SECONDS,
                ssl_certfile=settings.certificate,
                ssl_keyfile=settings.key,
            )
        )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._application.close()
        await super().shutdown(sockets)


def _allow_many_connections() -> None:
    """Raise the number of files that this process may open as far as it may itself."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
