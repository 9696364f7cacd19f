"""What the users of the feeds' door can choose."""

import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from onebus.errors import InvalidArgument
from onebus.objects.feeds.message import FeedMessage
from onebus.web.answers import Answer
from onebus.web.feeds.visitor import Visitor
from onebus.web.request import Request

T = TypeVar("T")

Lookup = Callable[[Request], T | Awaitable[T]]
"""Finds something out about a request; a plain or an async function."""

Filter = Callable[[FeedMessage, Visitor], bool]
"""Returns whether a visitor may see a message; a plain function, because it is asked for every message."""

Hook = Callable[[Visitor], Awaitable[None] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedSettings:
    """How the feeds' door behaves, and whom it asks."""

    base_route: str = "/"
    """Before ``message-bus/`` in all paths."""
    long_polling_enabled: bool = True
    long_polling_interval: float = 25.0
    """Seconds for which a poll is held."""
    chunked_encoding_enabled: bool = True
    """Whether held polls are streamed to clients that can read a stream."""
    max_active_clients: int = 1000
    """Held at the same time, over all transports; another one is told to come back later."""
    max_channels: int = 1000
    """Followed by one client."""
    allow_broadcast: bool = False
    """Whether whoever can reach the door may publish."""

    user_id_lookup: Lookup[int | str | None] | None = None
    group_ids_lookup: Lookup[Collection[int | str] | None] | None = None
    site_id_lookup: Lookup[str | None] | None = None
    is_admin_lookup: Lookup[bool] | None = None
    extra_response_headers_lookup: Lookup[Mapping[str, str]] | None = None

    may_subscribe: Callable[[Visitor, str], bool | Awaitable[bool]] | None = None
    """Returns whether a visitor may follow a channel; without it everybody may follow every channel."""
    filters: Sequence[tuple[str, Filter]] = ()
    """Prefixes of channels, and functions that may hide messages of such channels from a visitor."""
    on_connect: Hook | None = None
    """Called when a client begins to be held."""
    on_disconnect: Hook | None = None
    on_middleware_error: Callable[[Request, Exception], Answer | Awaitable[Answer | None] | None] | None = None
    """May return an answer to a request that failed; None leaves it to the door."""
    origins: Sequence[str] = ()
    """Other origins whose pages may talk to the door, such as ``https://example.org``; ``*`` is every one."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "base_route", re.sub("/+", "/", f"/{self.base_route}/"))
        for name in ("long_polling_interval", "max_active_clients", "max_channels"):
            value: Any = getattr(self, name)
            if not value > 0:
                raise InvalidArgument(f"{name} must be greater than 0, but is {value}.")
