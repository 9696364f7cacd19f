"""A server's process together with the processes it forks, such as the backends of PostgreSQL."""

import contextlib
import os
import select
import signal
import subprocess
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import IO


class Family:
    """One running server. It does not outlive this process, however this process ends."""

    def __init__(self, command: Sequence[str], *, folder: Path, log: IO[bytes], account: str | None) -> None:
        def spawn() -> subprocess.Popen[bytes]:
            return subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "--", *command],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Ctrl-C in the terminal is for the tests, not for their servers.
                start_new_session=True,
                user=account,
                group=account,
                extra_groups=None if account is None else [],
            )

        self._parent = _on_lasting_thread(spawn)
        self._frozen: list[int] = []
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        return self._parent.pid

    @property
    def exit_code(self) -> int | None:
        return self._parent.poll()

    def freeze(self) -> None:
        """Stop every process in its tracks; its connections stay open and silent."""
        if not self._frozen:
            self._frozen = self._halt()
            self._guard = _guard(self._frozen)

    def thaw(self) -> None:
        _send(signal.SIGCONT, reversed(self._frozen))
        self._frozen = []
        self._dismiss_guard()

    def stop(self, stop_signal: signal.Signals, seconds: float) -> None:
        """Ask the server to end, and kill it when it takes too long."""
        self.thaw()
        self._parent.send_signal(stop_signal)
        try:
            self._parent.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """End every process at once, as a power cut would, and wait until all are gone."""
        pids = self._frozen or self._halt()
        ends = [end for pid in pids if (end := _end_of(pid)) is not None]
        _send(signal.SIGKILL, pids)
        self._parent.wait()
        for end in ends:
            _wait_for(end)
        self._frozen = []
        self._dismiss_guard()

    def _halt(self) -> list[int]:
        """Stop all processes, the parent first: a stopped parent has no further children."""
        if self.exit_code is not None:
            return []
        self._parent.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        children = _children(self.pid)
        _send(signal.SIGSTOP, children)
        return [self.pid, *children]

    def _dismiss_guard(self) -> None:
        if self._guard is not None:
            self._guard.communicate(b"\n")
            self._guard = None


def _on_lasting_thread(spawn: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
    """Start a child from a thread that outlives it.

    The kernel sends the parent-death signal already when the *thread* that started the child ends.
    """
    if threading.current_thread() is threading.main_thread():
        return spawn()
    started: Future[subprocess.Popen[bytes]] = Future()

    def start_and_stay() -> None:
        try:
            child = spawn()
        except (OSError, subprocess.SubprocessError) as error:
            started.set_exception(error)
            return
        end = _end_of(child.pid)
        started.set_result(child)
        if end is not None:
            _wait_for(end)

    threading.Thread(target=start_and_stay, name="server-parent", daemon=True).start()
    return started.result()


def _guard(pids: Iterable[int]) -> subprocess.Popen[bytes]:
    """Kill frozen processes if this process ends before it thaws them.

    Forked children get no parent-death signal, and frozen ones do not notice that their parent is gone.
    """
    script = 'read -r line || kill -KILL "$@"'
    command = ["sh", "-c", script, "guard", *map(str, pids)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True)


def _children(pid: int) -> list[int]:
    try:
        lists = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:
        return []
    return [int(child) for line in lists for child in line.split()]


def _send(number: signal.Signals, pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _end_of(pid: int) -> int | None:
    """A descriptor that becomes readable when the process ends; it need not be a child of ours."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None


def _wait_for(end: int) -> None:
    poller = select.poll()
    poller.register(end, select.POLLIN)
    poller.poll()
    os.close(end)
