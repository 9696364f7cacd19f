"""Pushes whose outcome is not known to the writer yet, but to be awaited all the same."""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Any


class EarlyPush:
    """A push that waits for its queue to be attached. Awaiting it gives the id of the message.

    Cancellation: it is not pushed, if it was not before.
    """

    __slots__ = ("_error", "_push", "_receipt", "_waiters", "is_given_up")

    def __init__(self, push: Callable[[], Awaitable[int]]) -> None:
        self.is_given_up = False
        self._push = push
        self._receipt: Awaitable[int] | None = None
        self._error: Exception | None = None
        self._waiters: list[asyncio.Future[None]] = []

    def __await__(self) -> Generator[Any, None, int]:
        if self._receipt is None and self._error is None:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                yield from waiter
            except BaseException:
                self.is_given_up = True
                raise
        if self._receipt is None:
            raise self._error or RuntimeError("an early push was woken before it was pushed")
        return (yield from self._receipt.__await__())

    def push(self) -> None:
        """Push it now."""
        self._wake()
        self._receipt = self._push()

    def fail(self, error: Exception) -> bool:
        """Never push it, and return whether somebody hears of that."""
        self._error = error
        return self._wake()

    def _wake(self) -> bool:
        waiting = [waiter for waiter in self._waiters if not waiter.done()]
        for waiter in waiting:
            waiter.set_result(None)
        return bool(waiting)


class NamedPush:
    """A push that asks the store first, in a task of its own. If it fails and nobody awaits it, `unheard` is told."""

    __slots__ = ("_is_awaited", "_task", "_unheard")

    def __init__(self, task: "asyncio.Task[int]", unheard: Callable[[Exception], None]) -> None:
        self._task = task
        self._unheard = unheard
        self._is_awaited = False
        task.add_done_callback(self._done)

    def __await__(self) -> Generator[Any, None, int]:
        self._is_awaited = True
        return self._task.__await__()

    def _done(self, task: "asyncio.Task[int]") -> None:
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception) and not self._is_awaited:
            self._unheard(error)
