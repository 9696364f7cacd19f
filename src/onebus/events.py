"""Events of the bus and its objects: who asked to be told what.

Handlers are plain or async functions. They are called one after the other, in the order in which they were added, and
an async one is awaited before the next: a slow handler slows down what feeds it, and nothing overtakes anything.
"""

import asyncio
import inspect
import logging
from collections.abc import Callable
from typing import Any

from onebus.errors import BusError

_log = logging.getLogger("onebus")

Handler = Callable[..., Any]
"""A plain or async function; what it returns is ignored."""


class Events:
    """The handlers of one object. A failing handler is reported as an ``error`` event and stops nobody."""

    def __init__(self) -> None:
        self._handlers: dict[str, list[Handler]] = {}

    def on(self, event: str, handler: Handler) -> Handler:
        """Call `handler` whenever the event happens. Returns the handler, so that it can be taken off again."""
        self._handlers.setdefault(event, []).append(handler)
        return handler

    def once(self, event: str, handler: Handler) -> Handler:
        """Call `handler` the next time the event happens. Returns what `off` takes."""

        def only_once(*values: object) -> Any:
            self.off(event, only_once)
            return handler(*values)

        return self.on(event, only_once)

    def off(self, event: str, handler: Handler | None = None) -> None:
        """Stop calling `handler`, or every handler of the event."""
        kept = [] if handler is None else [one for one in self._handlers.get(event, ()) if one != handler]
        self._handlers[event] = kept
        if not kept:
            del self._handlers[event]

    def has(self, event: str) -> bool:
        """Return whether anybody wants to hear of the event."""
        return event in self._handlers

    async def emit(self, event: str, *values: object) -> None:
        """Call the handlers of an event. Never raises what they raise."""
        handlers = tuple(self._handlers.get(event, ()))
        for handler in handlers:
            await self.call(handler, *values, event=event)
        if event == "error" and not handlers:
            _log.error("%s", values[0] if values else "an error without a reason", exc_info=_surprise(values))

    async def call(self, handler: Handler, *values: object, event: str = "") -> None:
        """Call one handler, of an event or of something else. What it raises is an ``error`` event."""
        try:
            result = handler(*values)
            if inspect.isawaitable(result):
                await result
        except asyncio.CancelledError as error:
            if _is_cancelled():
                raise
            await self._failed(event, error)
        except Exception as error:
            await self._failed(event, error)

    async def _failed(self, event: str, error: BaseException) -> None:
        if event == "error":
            # Whoever fails while hearing of an error must not be told of that one too, for ever.
            _log.error("a handler of error events failed", exc_info=error)
        else:
            await self.emit("error", error)


class Emitter:
    """What has events: the bus and its objects."""

    def __init__(self) -> None:
        self.events = Events()

    def on(self, event: str, handler: Handler) -> Handler:
        """Call a plain or async function whenever an event happens; see `Events.on`."""
        return self.events.on(event, handler)

    def once(self, event: str, handler: Handler) -> Handler:
        """Call a plain or async function the next time an event happens."""
        return self.events.once(event, handler)

    def off(self, event: str, handler: Handler | None = None) -> None:
        """Stop calling a function, or every function, for an event."""
        self.events.off(event, handler)


def _is_cancelled() -> bool:
    """Return whether it is the running task that is cancelled, and not just something that a handler waited for."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def _surprise(values: tuple[object, ...]) -> BaseException | None:
    """Return an error whose traceback is worth reading. What a bus error says is enough, and there may be thousands."""
    error = values[0] if values else None
    return error if isinstance(error, BaseException) and not isinstance(error, BusError) else None
