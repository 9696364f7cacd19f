"""A short cut for servers that offer one: answers are written at once, past the steps that ASGI has for that.

To wake a task costs more than to write what it would have written, which counts with thousands of clients.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol, cast

from onebus.web.asgi import Scope

LANE: Final = "onebus.lane"
"""Under this name a server puts the lane of a connection into the scope of its requests."""


class Lane(Protocol):
    """Writes a whole answer, or chunks of one that is being streamed, in HTTP/1.1."""

    @property
    def is_free(self) -> bool:
        """Whether what is written now is on its way at once."""

    def write(self, chunk: bytes) -> None: ...

    def take_body(self) -> bytes | None:
        """Return the whole body of the request, or None if it is not here yet, or not here any more."""

    def answer(self, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> None:
        """Give a whole answer, to a request of which nothing was answered yet; the length of its body is added."""

    def when_gone(self, gone: Callable[[], None]) -> None:
        """Call something when the client goes away before it was answered, or now if it has already."""


def lane_of(scope: Scope) -> Lane | None:
    """Return the lane of a request, if its server has any."""
    lane: Any = scope.get(LANE)
    return cast("Lane | None", lane)
