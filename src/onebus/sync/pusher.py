"""Pushes of blocking code: begun in the order in which they were asked for, whether anybody waits for them or not."""

import asyncio
import inspect
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from onebus.errors import NotConnected, WouldDeadlock
from onebus.events import Events
from onebus.sync.portal import Portal

MAX_UNFINISHED: Final = 10_000
"""How many pushes may be on their way before those who push have to wait."""

Push = Callable[[], Awaitable[int]]
Unheard = Callable[[Exception], None]

_waiting = threading.Lock()


class Pushed:
    """A message that is on its way to the store. If it fails and nobody asks, that is an ``error`` event.

    There are many of them and few are asked, so one is a fraction of what a `concurrent.futures.Future` is.
    """

    __slots__ = ("_error", "_id", "_is_done", "_is_heard", "_stored", "_unheard")

    def __init__(self, unheard: Unheard) -> None:
        self._unheard = unheard
        self._is_done = False
        self._is_heard = False
        self._id = 0
        self._error: Exception | None = None
        self._stored: threading.Event | None = None

    def done(self) -> bool:
        """Return whether it is stored, or has failed."""
        return self._is_done

    def result(self, timeout: float | None = None) -> int:
        """Wait until the message is stored, and return its id; the outcome stays, however often it is asked for.

        Raises:
            TimeoutError: it was not stored within `timeout` seconds; it is still on its way.
            BusError: it could not be stored.
        """
        self._is_heard = True
        if not self._is_done:
            with _waiting:
                stored = self._stored = self._stored or threading.Event()
            # What was done before there was anything to set needs no waiting.
            if not self.done() and not stored.wait(timeout):
                raise TimeoutError(f"The message was not stored within {timeout} s.")
        if self._error is not None:
            raise self._error
        return self._id

    def succeeded(self, message_id: int) -> None:
        self._id = message_id
        self._finish()

    def failed(self, error: Exception) -> None:
        self._error = error
        self._finish()

    def _finish(self) -> None:
        self._is_done = True
        with _waiting:
            stored = self._stored
        if stored is not None:
            stored.set()

    def __del__(self) -> None:
        if self._error is not None and not self._is_heard:
            self._unheard(self._error)


class Pusher:
    """Begins pushes in the loop, and hands out their ids as they become known."""

    def __init__(self, portal: Portal, events: Events) -> None:
        self._portal = portal
        self._events = events
        self._reports: set[asyncio.Task[None]] = set()
        self._unfinished = 0
        self._has_room = threading.Condition()
        self._is_full = False
        self._asked: deque[tuple[Push, Pushed]] = deque()
        self._begun: deque[tuple[Awaitable[int], Pushed]] = deque()
        self._is_held_up = False
        self._finishing: asyncio.Task[None] | None = None

    def push(self, push: Push) -> Pushed:
        """Call `push` in the loop, after those that were asked for before. Waits only if too many are on their way."""
        pushed = Pushed(self._failed)
        with self._has_room:
            if self._unfinished >= MAX_UNFINISHED:
                self._wait_for_room()
            self._unfinished += 1
        self._portal.post(self._enter, push, pushed)
        return pushed

    def push_and_wait(self, push: Push) -> int:
        """Do the same, and return the id of the message when it is stored."""
        pushed = self.push(push)
        self._portal.expect()
        return pushed.result()

    def _failed(self, error: Exception) -> None:
        # When a program ends, nobody is left to hear of it.
        with suppress(RuntimeError):
            self._portal.post(self._report, error)

    def _wait_for_room(self) -> None:
        if self._portal.is_in_loop:
            raise WouldDeadlock("Too many pushes are on their way, and only this thread can finish them.")
        # For half of them, so that those who push fast do not wait for each single one.
        self._is_full = True
        self._has_room.wait_for(lambda: self._unfinished <= MAX_UNFINISHED // 2)

    # In the loop

    def _report(self, error: Exception) -> None:
        report = asyncio.create_task(self._events.emit("error", error), name="onebus-error")
        self._reports.add(report)
        report.add_done_callback(self._reports.discard)

    def _enter(self, push: Push, pushed: Pushed) -> None:
        self._asked.append((push, pushed))
        self._begin()
        if self._finishing is None and self._begun:
            self._finishing = asyncio.create_task(self._finish(), name="onebus-pushes")

    def _begin(self) -> None:
        while self._asked and not self._is_held_up:
            push, pushed = self._asked.popleft()
            try:
                receipt = push()
            except Exception as error:
                self._finished(pushed, error=error)
                continue
            # One that has to wait for room holds up those behind it: otherwise they would overtake it.
            self._is_held_up = inspect.iscoroutine(receipt)
            self._begun.append((receipt, pushed))

    async def _finish(self) -> None:
        try:
            while self._begun:
                receipt, pushed = self._begun[0]
                try:
                    message_id = await receipt
                except Exception as error:
                    self._finished(pushed, error=error)
                else:
                    self._finished(pushed, message_id)
                self._begun.popleft()
                if inspect.iscoroutine(receipt):
                    self._is_held_up = False
                    self._begin()
        finally:
            self._finishing = None
            self._give_up()

    def _give_up(self) -> None:
        """Let fail what is left when the loop ends before its outcome is known."""
        left = [pushed for waiting in (self._begun, self._asked) for _, pushed in waiting]
        for receipt, _ in self._begun:
            if inspect.iscoroutine(receipt):
                receipt.close()
        self._begun.clear()
        self._asked.clear()
        self._is_held_up = False
        for pushed in left:
            self._finished(pushed, error=NotConnected("The bus was disconnected before the message was stored."))

    def _finished(self, pushed: Pushed, message_id: int = 0, *, error: Exception | None = None) -> None:
        if error is None:
            pushed.succeeded(message_id)
        else:
            # Without the frame that caught it: that one knows the push, and would keep it alive with its error.
            traceback = error.__traceback__
            pushed.failed(error.with_traceback(traceback and traceback.tb_next))
        with self._has_room:
            self._unfinished -= 1
            if self._is_full and self._unfinished <= MAX_UNFINISHED // 2:
                self._is_full = False
                self._has_room.notify_all()
