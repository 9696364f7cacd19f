"""A connection of the web server: requests come in, one after the other, and answers go out in the same order."""

import asyncio
import logging
from collections import deque
from typing import Any, Final, cast
from urllib.parse import unquote

import httptools
from uvicorn.config import Config
from uvicorn.server import ServerState

from onebus.web.asgi import Scope
from onebus.web.lane import LANE
from onebus.web.wire.exchange import Exchange
from onebus.web.wire.head import RawHeaders, plain_answer

MAX_HEAD_BYTES: Final = 64 * 1024
MAX_WAITING_EXCHANGES: Final = 16
"""Requests that a client sends ahead; more than these are not read before the first ones are answered."""

_ASGI: Final = {"version": "3.0", "spec_version": "2.4"}
_OF_A_REQUEST: Final = ("method", "http_version", "path", "raw_path", "query_string", "headers", "state", LANE)
_UPGRADING: Final = (b"upgrade", b"connection", b"http2-settings")

_log = logging.getLogger("onebus")


class Connection(asyncio.Protocol):
    """Speaks HTTP/1.1 with one client, in the place of the web server's own class for that.

    An application is called when the whole request is here, unless that takes long, and what it sends goes out in as
    few writes as possible.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        if not config.loaded:
            config.load()
        self._config = config
        self._server_state = server_state
        self._app_state = app_state
        self._app = config.loaded_app
        self._loop = _loop or asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self.transport: asyncio.Transport = cast("asyncio.Transport", None)
        self._blank_scope: dict[str, Any] = {}
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._head_bytes = 0
        self._receiving: Exchange | None = None
        self._answering: Exchange | None = None
        self._waiting: deque[Exchange] = deque()
        self._is_lost = False
        self._is_reading = True
        self._is_stopping = False
        self._writable: asyncio.Future[None] | None = None
        self._idle_since = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None

    # Life

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._server_state.connections.add(self)  # type: ignore[arg-type]
        self._blank_scope = {
            "type": "http",
            "asgi": _ASGI,
            "scheme": "http" if transport.get_extra_info("sslcontext") is None else "https",
            "server": _address(transport.get_extra_info("sockname")),
            "client": _address(transport.get_extra_info("peername")),
            "root_path": self._config.root_path,
            # A copy that has room for everything need not grow for every request.
            **dict.fromkeys(_OF_A_REQUEST),
        }
        self._timer = self._loop.call_later(self._config.timeout_keep_alive, self._look_at_the_time)

    def connection_lost(self, _: Exception | None) -> None:
        self._is_lost = True
        self._leave()
        for exchange in (self._answering, *self._waiting):
            if exchange is not None:
                exchange.lose()
        self._waiting.clear()
        self.resume_writing()

    def shutdown(self) -> None:
        """Hear that the server stops: what is being answered is the last."""
        self._is_stopping = True
        if self._answering is None:
            self.transport.close()
        else:
            self._answering.keeps_alive = False

    def _leave(self) -> None:
        self._server_state.connections.discard(self)
        if self._timer is not None:
            self._timer.cancel()

    def _look_at_the_time(self) -> None:
        """Close the connection if nothing was asked over it for long. One timer that is late is cheaper than many."""
        patience: float = self._config.timeout_keep_alive
        if self._answering is None:
            patience -= self._loop.time() - self._idle_since
            if patience <= 0:
                self.transport.close()
                return
        self._timer = self._loop.call_later(patience, self._look_at_the_time)

    # What comes in

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._upgrade(data[upgrade.args[0] :])
            return
        except httptools.HttpParserError as error:
            self._refuse(400, f"This cannot be read as HTTP: {error.__context__ or error}")
            return
        if self._receiving is not None:
            # The rest of its body comes later, and the application may want to see what there is.
            self._start(self._receiving)
        elif self._url:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self._refuse(431, f"The head of a request has at most {MAX_HEAD_BYTES} bytes.")

    def on_url(self, part: bytes) -> None:
        self._url += part

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        scope = self._scope()
        wants_continue = (b"expect", b"100-continue") in self._headers
        keeps_alive = self._parser.should_keep_alive() and not self._is_stopping
        self._receiving = Exchange(self, scope, keeps_alive=keeps_alive, wants_continue=wants_continue)
        self._url = b""
        self._headers = []
        self._head_bytes = 0

    def on_body(self, part: bytes) -> None:
        if self._receiving is not None and not self._receiving.add(part):
            self._pause_reading()

    def on_message_complete(self) -> None:
        if self._receiving is not None and not self._parser.should_upgrade():
            exchange, self._receiving = self._receiving, None
            exchange.complete()
            self._start(exchange)

    def _scope(self) -> Scope:
        if self._url.startswith(b"/") and b"#" not in self._url:
            raw_path, _, query = self._url.partition(b"?")
        else:
            parsed = httptools.parse_url(self._url)
            raw_path, query = parsed.path or b"/", parsed.query or b""
        path = raw_path.decode("latin-1")
        scope = self._blank_scope.copy()
        scope["method"] = self._parser.get_method().decode("ascii")
        scope["http_version"] = self._parser.get_http_version()
        scope["path"] = unquote(path) if "%" in path else path
        scope["raw_path"] = raw_path
        scope["query_string"] = query
        scope["headers"] = self._headers
        scope["state"] = self._app_state.copy()
        return scope

    def _start(self, exchange: Exchange) -> None:
        """Have a request answered, now or when those before it are."""
        if self._answering is None:
            self._answering = exchange
            exchange.start(self._app, self._loop, self._server_state.tasks)
        elif exchange is not self._answering and exchange not in self._waiting:
            self._waiting.append(exchange)
            if len(self._waiting) >= MAX_WAITING_EXCHANGES:
                self._pause_reading()

    def _upgrade(self, rest: bytes) -> None:
        """Hand the connection over to the server's protocol for websockets. Other wishes to change it are ignored."""
        exchange, self._receiving = self._receiving, None
        if exchange is None:
            return
        headers = exchange.scope["headers"]
        if (b"upgrade", b"websocket") in ((name, value.lower()) for name, value in headers):
            self._leave()
            websocket = self._config.ws_protocol_class(  # type: ignore[misc,call-arg]
                config=self._config, server_state=self._server_state, app_state=self._app_state
            )
            websocket.connection_made(self.transport)
            websocket.data_received(_head_of(exchange.scope, headers) + rest)
            self.transport.set_protocol(websocket)
        else:
            self._parser = httptools.HttpRequestParser(self)
            kept = [header for header in headers if header[0] not in _UPGRADING]
            self.data_received(_head_of(exchange.scope, kept) + rest)

    def _refuse(self, status: int, text: str) -> None:
        if self.is_open:
            self.transport.write(plain_answer(status, text, self.default_headers))
            self.transport.close()

    # What goes out

    @property
    def is_open(self) -> bool:
        return not self._is_lost and not self.transport.is_closing()

    @property
    def is_free(self) -> bool:
        return self._writable is None

    @property
    def default_headers(self) -> RawHeaders:
        return self._server_state.default_headers

    def finished(self, exchange: Exchange) -> None:
        self._server_state.total_requests += 1
        self._answering = None
        self._idle_since = self._loop.time()
        if not exchange.keeps_alive:
            self.transport.close()
            return
        if not exchange.is_whole:
            # Nobody wants the rest of its body.
            self._receiving = None
        if self._waiting:
            self._start(self._waiting.popleft())
        self.resume_reading()

    async def drain(self) -> None:
        if self._writable is not None:
            await asyncio.shield(self._writable)

    def pause_writing(self) -> None:
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        writable, self._writable = self._writable, None
        if writable is not None:
            writable.set_result(None)

    def _pause_reading(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        if not self._is_reading and self.is_open:
            self._is_reading = True
            self.transport.resume_reading()


def _address(name: Any) -> tuple[str, int] | None:
    return (str(name[0]), int(name[1])) if isinstance(name, tuple | list) and len(name) >= 2 else None


def _head_of(scope: Scope, headers: list[tuple[bytes, bytes]]) -> bytes:
    """Return the head of a request as it was received, with these headers."""
    query = b"?" + scope["query_string"] if scope["query_string"] else b""
    first = b"%b %b%b HTTP/%b\r\n" % (
        scope["method"].encode(),
        scope["raw_path"],
        query,
        scope["http_version"].encode(),
    )
    return b"".join((first, *(b"%b: %b\r\n" % header for header in headers), b"\r\n"))
