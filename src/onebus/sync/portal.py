"""The thread in which a bus runs for blocking code, and the ways into it.

The objects of a bus live in one event loop. Here that loop has a thread of its own: a blocking call sends its work
there and waits for the outcome. What needs no outcome, an acknowledgement for example, is posted: it goes along with
whatever enters the loop next, in order, so that a thousand of them cost one change of threads.

Handlers leave the loop the other way: they run in threads of their own, so that they may block and make blocking calls.
What such a call asks for is done by the very task that waits for the handler. So a handler may stop, detach or
disconnect what has called it, as it may in async code: nothing waits for itself.

The thread begins with the first call and ends when the bus is disconnected. The loop itself lives as long as the
portal, because the objects of the bus are bound to it and may be used again.
"""

import asyncio
import logging
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import Any, Final, TypeVar

from onebus.errors import NotConnected, UsedAfterFork, WouldDeadlock

_log = logging.getLogger("onebus")

T = TypeVar("T")

GATHER_SECONDS: Final = 0.001
"""How long what is posted in quick succession gathers: to wake the loop costs more than most of what is posted."""
LAST_CALL_SECONDS: Final = 0.2
"""How long calls may take to end by themselves when the bus is disconnected."""
MAX_HANDLERS: Final = 1000
"""How many handlers may run at the same time."""
FAREWELL_SECONDS: Final = 5.0
"""How long a thread that ends waits for what it has cancelled."""

_this_thread = threading.local()


class Portal:
    """Carries calls of any thread into the event loop of one bus."""

    def __init__(self) -> None:
        self._home = _Home()
        self._loop = self._home.loop
        self._thread: threading.Thread | None = None
        self._starting = threading.RLock()
        self._calls: set[Future[Any]] = set()
        self._posted: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._is_announced = False
        self._gathering: asyncio.TimerHandle | None = None
        self._workers: ThreadPoolExecutor | None = None
        weakref.finalize(self, self._home.leave)

    # Into the loop

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop, and return what it returns. Interrupting the call cancels the coroutine.

        Raises:
            WouldDeadlock: this is the thread of the loop.
            UsedAfterFork: the loop is in another process.
            NotConnected: the bus was disconnected meanwhile.
        """
        try:
            self._check_caller()
            with self._starting:
                self._start()
                self._hurry()
                desk = getattr(_this_thread, "desk", None)
                if desk is None or desk.portal is not self:
                    outcome = asyncio.run_coroutine_threadsafe(work, self._loop)
                else:
                    outcome = desk.ask(work)
                self._calls.add(outcome)
        except BaseException:
            work.close()
            raise
        return self._outcome_of(outcome)

    def finish(self, work: Coroutine[Any, Any, object]) -> None:
        """Run a coroutine in the loop as `call` does, if that is possible; for what has to be tidied up.

        It is not waited for in the thread of the loop, where the garbage collector may have brought the caller.
        """
        if not self._home.is_here:
            work.close()
        elif threading.current_thread() is self._thread:
            asyncio.run_coroutine_threadsafe(work, self._loop)
        else:
            self.call(work)

    def check_process(self) -> None:
        """Check that this is the process of the loop.

        Raises:
            UsedAfterFork: the loop is in another process.
        """
        if not self._home.is_here:
            raise _used_after_fork()

    def post(self, function: Callable[..., object], *arguments: Any) -> None:
        """Call a function in the loop soon, after all that was posted and before all that is called after this."""
        self.check_process()
        self._posted.append((function, arguments))
        # Whoever sees the flag has added to what will be taken soon; two announcements do no harm.
        if not self._is_announced and self._thread is not None:
            self._is_announced = True
            self._loop.call_soon_threadsafe(self._take_posted)

    def expect(self) -> None:
        """Let enter the loop now what was posted, because the caller is about to wait for its outcome.

        Raises:
            WouldDeadlock, UsedAfterFork: as `call` does.
        """
        self._check_caller()
        with self._starting:
            self._start()
            self._hurry()

    @property
    def is_in_loop(self) -> bool:
        """Whether this is the thread of the loop."""
        return threading.current_thread() is self._thread

    def _outcome_of(self, outcome: "Future[T]") -> T:
        try:
            return outcome.result()
        except CancelledError:
            raise NotConnected("The bus was disconnected while this call was waiting.") from None
        except BaseException:
            outcome.cancel()
            raise
        finally:
            self._calls.discard(outcome)

    def _check_caller(self) -> None:
        self.check_process()
        if self.is_in_loop:
            raise WouldDeadlock(
                "A blocking call was made in the thread that has to carry it out, for example by the clock of the bus. "
                "Make it in another thread."
            )

    def _hurry(self) -> None:
        """Let what was posted enter the loop now."""
        if self._posted:
            self._loop.call_soon_threadsafe(self._take_posted)

    def _take_posted(self) -> None:
        if self._gathering is None:
            self._gathering = self._loop.call_later(GATHER_SECONDS, self._gathered)
        while self._posted:
            function, arguments = self._posted.popleft()
            try:
                function(*arguments)
            except Exception:
                _log.exception("what was posted to the event loop failed")

    def _gathered(self) -> None:
        self._gathering = None
        if not self._posted:
            self._is_announced = False
        if self._posted:
            self._take_posted()

    # Out of the loop

    async def in_worker(self, function: Callable[..., T], *arguments: Any) -> T:
        """Run a function in a thread of its own, where it may block."""
        if self._workers is None:
            self._workers = ThreadPoolExecutor(MAX_HANDLERS, thread_name_prefix="onebus-handler")
        desk = _Desk(self)

        def run() -> T:
            _this_thread.desk = desk
            try:
                return function(*arguments)
            finally:
                _this_thread.desk = None

        return await desk.attend(self._loop.run_in_executor(self._workers, run))

    # Life

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._home.live, name="onebus-loop", daemon=True)
            self._thread.start()
            self._loop.call_soon_threadsafe(self._take_posted)

    def stop(self, *, unless: Callable[[], bool]) -> None:
        """End the thread, and every call that still waits, unless a condition holds in the thread at that moment.

        A later call begins another thread.
        """
        if not self._home.is_here:
            return
        self._check_caller()
        with self._starting:
            if self._thread is None:
                return
            if not asyncio.run_coroutine_threadsafe(self._end_calls(unless), self._loop).result():
                return
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._thread = None
            workers, self._workers = self._workers, None
        if workers is not None:
            workers.shutdown(wait=False, cancel_futures=True)

    async def _end_calls(self, unless: Callable[[], bool]) -> bool:
        if unless():
            return False
        calls = [asyncio.wrap_future(call) for call in tuple(self._calls)]
        if calls:
            _, late = await asyncio.wait(calls, timeout=LAST_CALL_SECONDS)
            for call in late:
                call.cancel()
        await _end_all_tasks()
        return True


class _Desk:
    """Where the calls of one handler are carried out: by the task that waits for it."""

    def __init__(self, portal: Portal) -> None:
        self.portal = portal
        self._loop = asyncio.get_running_loop()
        self._calls: deque[tuple[Coroutine[Any, Any, Any], Future[Any]]] = deque()
        self._something = asyncio.Event()
        self._is_open = True

    def ask(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Have a coroutine run, from the thread of the handler."""
        outcome: Future[T] = Future()
        self._loop.call_soon_threadsafe(self._take, work, outcome)
        return outcome

    async def attend(self, handler: "asyncio.Future[T]") -> T:
        """Carry out the calls of a handler until it returns. Cancelled, it leaves the handler to itself."""
        handler.add_done_callback(lambda _: self._something.set())
        try:
            while not handler.done():
                await self._something.wait()
                self._something.clear()
                while self._calls:
                    await _carry_out(*self._calls.popleft())
        finally:
            self._is_open = False
            for work, outcome in self._calls:
                self._pass_on(work, outcome)
        return handler.result()

    def _take(self, work: Coroutine[Any, Any, Any], outcome: Future[Any]) -> None:
        if self._is_open:
            self._calls.append((work, outcome))
            self._something.set()
        else:
            self._pass_on(work, outcome)

    def _pass_on(self, work: Coroutine[Any, Any, Any], outcome: Future[Any]) -> None:
        # The future knows its task, as any call that runs in a task of its own.
        task = asyncio.create_task(_carry_out(work, outcome))
        outcome.add_done_callback(lambda _: task)


async def _carry_out(work: Coroutine[Any, Any, Any], outcome: Future[Any]) -> None:
    try:
        result = await work
    except Exception as error:
        if not outcome.done():
            outcome.set_exception(error)
    except BaseException:
        outcome.cancel()
        raise
    else:
        if not outcome.done():
            outcome.set_result(result)


class _Home:
    """The loop and the process it belongs to. Its thread knows this, and not the portal, which nothing keeps alive."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._process = os.getpid()
        self._is_left = False

    @property
    def is_here(self) -> bool:
        return os.getpid() == self._process

    def live(self) -> None:
        """Run the loop until it is stopped."""
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        if self._is_left:
            self.loop.run_until_complete(_end_all_tasks())
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()

    def leave(self) -> None:
        """Close the loop for good, once nobody uses it or the program ends."""
        # A forked process shares what the loop waits on: to close it there would close it here.
        if not self.is_here or self.loop.is_closed():
            return
        self._is_left = True
        if self.loop.is_running():
            self.loop.call_soon_threadsafe(self.loop.stop)
        else:
            self.loop.close()


async def _end_all_tasks() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=FAREWELL_SECONDS)


def _used_after_fork() -> UsedAfterFork:
    return UsedAfterFork("This bus was created before the process was forked. Create another one in the new process.")
