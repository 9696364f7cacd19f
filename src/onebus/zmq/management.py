"""The management server of a broker: Socket.IO, over which consumers join groups and hear what they have to read."""

import asyncio
import hmac
import logging
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import socketio
import uvicorn

from onebus.errors import InvalidArgument, ServerUnavailable
from onebus.zmq.addresses import host_and_port

_log = logging.getLogger("onebus")

PING_SECONDS: Final = 5
"""A consumer that hangs is noticed after twice as long."""
BACKLOG: Final = 1024
MAX_EVENT_BYTES: Final = 1024 * 1024

Handler = Callable[[str, Mapping[str, Any]], Awaitable[None]]
"""Called with the client and what it said."""


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_started = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.is_started.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        # Signals are for the program that has the broker, and not for one of its parts.
        yield


class Management:
    """Hears what consumers say, and tells them things."""

    def __init__(self, url: str, *, secret: str, left: Callable[[str], Awaitable[None]]) -> None:
        self._url = url
        self._secret = secret
        self._left = left
        self._clients: set[str] = set()
        self._io = socketio.AsyncServer(
            async_mode="asgi",
            # So that what one client says is heard in its order.
            async_handlers=False,
            ping_interval=PING_SECONDS,
            ping_timeout=PING_SECONDS,
            max_http_buffer_size=MAX_EVENT_BYTES,
        )
        self._io.on("connect", self._connected)
        self._io.on("disconnect", self._disconnected)
        config = uvicorn.Config(
            socketio.ASGIApp(self._io),
            lifespan="off",
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=1,
        )
        self._server = _Server(config)
        self._listener: socket.socket | None = None
        self._serving: asyncio.Task[None] | None = None

    def on(self, event: str, handler: Handler) -> None:
        """Call `handler` when a client says something; what makes no sense is logged and does no harm."""

        async def hear(client: str, said: object = None, *_: object) -> None:
            try:
                if not isinstance(said, dict):
                    raise InvalidArgument(f"{event} needs an object.")
                await handler(client, said)
            except Exception as error:
                _log.warning("%s of a consumer was refused: %s", event, error)
                await self._io.emit("error", {"event": event, "message": str(error)}, to=client)

        self._io.on(event, hear)

    def has(self, client: str) -> bool:
        """Return whether a client is connected."""
        return client in self._clients

    async def tell(self, client: str, event: str, value: Mapping[str, Any]) -> None:
        await self._io.emit(event, value, to=client)

    async def open(self) -> None:
        """Listen.

        Raises:
            InvalidArgument: the port cannot be had.
        """
        host, port = host_and_port(self._url)
        host = host.strip("[]")
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            listener = self._listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
        except OSError as error:
            raise InvalidArgument(f"{self._url} cannot be used: {error.strerror}.") from None
        self._serving = asyncio.create_task(self._server.serve(sockets=[listener]), name="onebus-broker-management")
        starting = asyncio.create_task(self._server.is_started.wait())
        await asyncio.wait((starting, self._serving), return_when=asyncio.FIRST_COMPLETED)
        starting.cancel()

    async def serve(self) -> None:
        """Wait until the server ends, and raise why it did."""
        if self._serving is not None:
            await asyncio.shield(self._serving)
            if not self._server.should_exit:
                raise ServerUnavailable(f"The management server at {self._url} has ended.")

    async def close(self) -> None:
        if self._serving is not None:
            await self._io.shutdown()
            self._server.should_exit = True
            (error,) = await asyncio.gather(self._serving, return_exceptions=True)
            if error is not None and self._listener is not None:
                # It has left everything open.
                await self._server.shutdown([self._listener])
            self._serving = None

    async def _connected(self, client: str, environment: Mapping[str, Any], auth: object = None) -> None:
        token = auth.get("token") if isinstance(auth, dict) else None
        if self._secret and not hmac.compare_digest(str(token).encode(), self._secret.encode()):
            raise socketio.exceptions.ConnectionRefusedError("This broker needs its secret as auth.token.")
        self._clients.add(client)

    async def _disconnected(self, client: str, *_: object) -> None:
        self._clients.discard(client)
        await self._left(client)
