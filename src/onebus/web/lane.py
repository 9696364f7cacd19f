"""A short cut for servers that offer one: what is streamed to thousands of clients is written past their tasks.

To wake a task costs more than to write what it would have written.
"""

from typing import Any, Final, Protocol, cast

from onebus.web.asgi import Scope

LANE: Final = "onebus.lane"
"""Under this name a server puts the lane of a connection into the scope of its requests."""


class Lane(Protocol):
    """Writes chunks of an answer that is being streamed, in HTTP/1.1."""

    @property
    def is_free(self) -> bool:
        """Whether what is written now is on its way at once."""

    def write(self, chunk: bytes) -> None: ...


def lane_of(scope: Scope) -> Lane | None:
    """Return the lane of a request, if its server has any."""
    lane: Any = scope.get(LANE)
    return cast("Lane | None", lane)
