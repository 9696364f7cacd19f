"""Events for blocking code: handlers are plain functions, and run in threads where they may block.

The handlers of one event are called one after the other, and an object goes on when they have returned: a handler that
blocks slows down what feeds it, and nothing else. Handlers of different objects may run at the same time.
"""

import inspect
import threading
from collections.abc import Callable
from typing import Any

from onebus.errors import InvalidArgument
from onebus.events import Events
from onebus.message import Message as AsyncMessage
from onebus.sync.message import Message
from onebus.sync.portal import Portal

Handler = Callable[..., Any]
"""A plain function; what it returns is ignored."""


class Relay:
    """Calls a handler in a thread of its own; to the loop it is an async handler. It equals the handler it is for."""

    def __init__(self, portal: Portal, handler: Handler, *, forget: Callable[["Relay"], None] | None = None) -> None:
        self._portal = portal
        self._handler = handler
        self._forget = forget

    async def __call__(self, *values: object) -> None:
        if self._forget is not None:
            self._forget(self)
        await self._portal.in_worker(self._handler, *(_for_blocking_code(self._portal, value) for value in values))

    def __eq__(self, other: object) -> bool:
        return other is self if isinstance(other, Relay) else other == self._handler

    def __hash__(self) -> int:
        return hash(self._handler)


class Emitter:
    """What has events; see `onebus.events`."""

    def __init__(self, portal: Portal, events: Events) -> None:
        self._portal = portal
        self._events = events
        self._changing = threading.Lock()

    def on(self, event: str, handler: Handler) -> Handler:
        """Call a function whenever an event happens from now on. Returns the function."""
        self._add(event, Relay(self._portal, checked_plain(handler)))
        return handler

    def once(self, event: str, handler: Handler) -> Handler:
        """Call a function the next time an event happens. Returns the function."""
        self._add(event, Relay(self._portal, checked_plain(handler), forget=lambda relay: self.off(event, relay)))
        return handler

    def off(self, event: str, handler: Handler | None = None) -> None:
        """Stop calling a function, or every function, for an event."""
        self._portal.check_process()
        with self._changing:
            self._events.off(event, handler)

    def _add(self, event: str, relay: Relay) -> None:
        # Not in the loop, but here: what happens after this call is heard, also if another bus causes it.
        self._portal.check_process()
        with self._changing:
            self._events.on(event, relay)


def checked_plain(handler: Handler) -> Handler:
    """Return a handler, which has to be a plain function."""
    if inspect.iscoroutinefunction(handler):
        raise InvalidArgument("Handlers of a blocking bus are plain functions; async ones are for onebus.Bus.")
    return handler


def _for_blocking_code(portal: Portal, value: object) -> object:
    return Message(portal, value) if isinstance(value, AsyncMessage) else value
