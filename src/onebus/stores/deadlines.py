"""Calls that must end in time: all of them have the same time, so one timer watches the oldest."""

import asyncio
from types import TracebackType


class Deadlines:
    """Cancels a call that takes longer than `seconds`, and raises `TimeoutError` where it was made.

    It does what `asyncio.timeout` does, without a timer for each call: hardly any call ever needs it.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._running: dict[Deadline, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def one(self) -> "Deadline":
        """Return a context in which a call must end."""
        return Deadline(self)

    def stop(self) -> None:
        """Watch nothing until the next call begins."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def begin(self, deadline: "Deadline") -> None:
        loop = asyncio.get_running_loop()
        deadline.ends_at = loop.time() + self._seconds
        self._running[deadline] = None
        if self._timer is None:
            self._timer = loop.call_at(deadline.ends_at, self._look)

    def end(self, deadline: "Deadline") -> None:
        self._running.pop(deadline, None)

    def _look(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        now = loop.time()
        for deadline in list(self._running):
            if deadline.ends_at > now:
                self._timer = loop.call_at(deadline.ends_at, self._look)
                break
            del self._running[deadline]
            deadline.pass_()


class Deadline:
    """The time of one call."""

    __slots__ = ("_deadlines", "_is_past", "_requests", "_task", "ends_at")

    def __init__(self, deadlines: Deadlines) -> None:
        self.ends_at = 0.0
        self._deadlines = deadlines
        self._is_past = False

    def __enter__(self) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a call with a deadline is made in a task")
        self._task = task
        self._requests = task.cancelling()
        self._deadlines.begin(self)

    def pass_(self) -> None:
        self._is_past = True
        self._task.cancel()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._deadlines.end(self)
        # Who else wants the task to be cancelled is not to be disappointed.
        if self._is_past and self._task.uncancel() <= self._requests and kind is asyncio.CancelledError:
            raise TimeoutError from error
