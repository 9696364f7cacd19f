"""Several processes that serve one port, and are started again when they die."""

import logging
import multiprocessing
import os
import signal
import socket
import threading
import time
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Final

from prometheus_client.multiprocess import mark_process_dead

from onebus.web.metrics import SHARED_FOLDER
from onebus.web.server import STOPPING_SECONDS, ServerSettings, run

RESTART_SECONDS: Final = 1.0
"""A worker that died is not started again sooner than so long after its start: it may die at once every time."""
LOOK_SECONDS: Final = 0.2

_log = logging.getLogger("onebus")
_spawn = multiprocessing.get_context("spawn")


class Workers:
    """Keeps a number of workers alive until a signal ends them all."""

    def __init__(self, settings: ServerSettings, listener: socket.socket) -> None:
        self._settings = settings
        self._listener = listener
        self._workers: list[tuple[SpawnProcess, float]] = []
        self._ended_by: int | None = None

    def run(self) -> None:
        """Serve until SIGINT or SIGTERM; the signal is raised again once all workers have stopped."""
        before = {one: signal.signal(one, self._end) for one in (signal.SIGINT, signal.SIGTERM)}
        with TemporaryDirectory(prefix="onebus-metrics-") as folder:
            os.environ[SHARED_FOLDER] = folder
            try:
                self._workers = [self._start() for _ in range(self._settings.workers)]
                while self._ended_by is None:
                    wait([worker.sentinel for worker, _ in self._workers], timeout=LOOK_SECONDS)
                    self._workers = [self._alive(*one) for one in self._workers]
            finally:
                self._stop()
                del os.environ[SHARED_FOLDER]
        for one, handler in before.items():
            signal.signal(one, handler)
        signal.raise_signal(self._ended_by)

    def _end(self, signum: int, _: FrameType | None) -> None:
        self._ended_by = signum

    def _start(self) -> tuple[SpawnProcess, float]:
        # Ctrl-C reaches all processes of a terminal: the workers wait for this one to tell them.
        worker = _spawn.Process(target=_work, args=(self._settings, self._listener), name="onebus-worker")
        worker.start()
        return worker, time.monotonic()

    def _alive(self, worker: SpawnProcess, started: float) -> tuple[SpawnProcess, float]:
        if worker.is_alive() or time.monotonic() < started + RESTART_SECONDS or self._ended_by is not None:
            return worker, started
        mark_process_dead(worker.pid, os.environ[SHARED_FOLDER])  # type: ignore[no-untyped-call]
        _log.warning("worker %s died with exit code %s and is started again", worker.pid, worker.exitcode)
        return self._start()

    def _stop(self) -> None:
        for worker, _ in self._workers:
            worker.terminate()
        deadline = time.monotonic() + STOPPING_SECONDS + 5
        for worker, _ in self._workers:
            worker.join(max(deadline - time.monotonic(), 0.1))
            if worker.is_alive():
                worker.kill()
                worker.join()


def _work(settings: ServerSettings, listener: socket.socket) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _leave_with_parent()
    run(settings, listener)


def _leave_with_parent() -> None:
    """Stop when the process that started this one is gone, however it went: nobody else would end it."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_leave_after, args=(parent.sentinel,), name="onebus-parent", daemon=True).start()


def _leave_after(sentinel: int) -> None:
    wait([sentinel])
    os.kill(os.getpid(), signal.SIGTERM)
