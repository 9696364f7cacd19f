"""A request as the doors and the lookups of their users see it."""

from functools import cached_property
from typing import Final
from urllib.parse import parse_qsl

from onebus.errors import InvalidArgument, PayloadTooLarge
from onebus.web.asgi import Receive, Scope
from onebus.web.headers import Headers
from onebus.web.lane import lane_of

MAX_BODY_BYTES: Final = 2 * 1024 * 1024
"""Larger bodies are refused, unless a door asks for another limit."""


class Request:
    """An HTTP request, or the beginning of a websocket. ``scope`` is what the web server knows of it."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.scope = scope
        self.receive = receive
        self.method: str = scope.get("method", "GET")
        self.path = _path_below_mount(scope)
        self.raw_headers: dict[bytes, bytes] = dict(scope["headers"])
        """The headers as they came, by their names in lower case; of several with one name, the last."""

    @property
    def headers(self) -> Headers:
        return Headers(self.raw_headers)

    @property
    def query(self) -> str:
        raw: bytes = self.scope.get("query_string", b"")
        return raw.decode("latin-1")

    @cached_property
    def parameters(self) -> dict[str, str]:
        """The parameters of the query; of several with one name, the last."""
        return dict(parse_qsl(self.query, keep_blank_values=True))

    async def body(self, *, max_bytes: int = MAX_BODY_BYTES) -> bytes:
        """Return the whole body.

        Raises:
            PayloadTooLarge: it is longer than ``max_bytes``.
            ClientGone: nobody waits for an answer any more.
        """
        lane = lane_of(self.scope)
        body = None if lane is None else lane.take_body()
        if body is None:
            return await self._receive_body(max_bytes)
        _check_size(len(body), max_bytes)
        return body

    async def _receive_body(self, max_bytes: int) -> bytes:
        parts: list[bytes] = []
        size = 0
        while True:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise ClientGone("The client went away before it had sent everything.")
            part = message.get("body", b"")
            size += len(part)
            _check_size(size, max_bytes)
            if not message.get("more_body"):
                return part if not parts else b"".join([*parts, part])
            parts.append(part)


class ClientGone(InvalidArgument):
    """The client went away before it had said everything."""

    code = "client_gone"


def _check_size(size: int, most: int) -> None:
    if size > most:
        raise PayloadTooLarge(f"The body is longer than {most} bytes.")


def _path_below_mount(scope: Scope) -> str:
    """Return the path within this application, wherever in another one it is mounted."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    return path[len(root) :] or "/" if root and path.startswith(root) else path
