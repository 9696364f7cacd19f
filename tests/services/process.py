"""A server: one subprocess with a folder and a port of its own."""

import atexit
import os
import shutil
import signal
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from tests.services.family import Family
from tests.services.patience import comes_true
from tests.services.port import free_port

_LOG_TAIL = 30


class MissingService(Exception):
    """The server's program is not installed."""


class ServiceFailed(Exception):
    """The server did not come up."""


def find_program(name: str, package: str) -> str:
    """The path of a program; `package` is the Debian package to install when there is none."""
    folders = [*os.get_exec_path(), "/usr/sbin", *map(str, sorted(Path("/usr/lib/postgresql").glob("*/bin")))]
    program = shutil.which(name, path=os.pathsep.join(folders))
    if program is None:
        raise MissingService(f"{name} is not installed: apt-get install {package}")
    return program


class Server(ABC):
    """Owns a subprocess. Port and data stay the same from `start` to `start`, until `close`."""

    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM
    # Who runs the server when root runs the tests.
    account: ClassVar[str | None] = None

    def __init__(self) -> None:
        # Directly below /tmp: other accounts cannot enter the folders that pytest makes.
        self.folder = Path(tempfile.mkdtemp(prefix="onebus-", dir="/tmp"))
        self.port = free_port()
        self.log_file = self.folder / "server.log"
        self._family: Family | None = None
        self._prepared = False
        self._owner = os.getpid()
        self._account = self.account if os.geteuid() == 0 else None
        if self._account is not None:
            shutil.chown(self.folder, self._account, self._account)
        atexit.register(self._close_at_exit)

    @abstractmethod
    def command(self) -> Sequence[str]:
        """The program and its arguments."""

    @abstractmethod
    def is_ready(self) -> bool:
        """Whether the server answers."""

    def prepare(self) -> None:
        """Make the server's data, once, before its first start."""

    @property
    def pid(self) -> int:
        return self._running().pid

    def start(self) -> None:
        if self._family is not None:
            raise RuntimeError(f"{self} runs already")
        if not self._prepared:
            self.prepare()
            self._prepared = True
        with self.log_file.open("ab") as log:
            self._family = Family(self.command(), folder=self.folder, log=log, account=self._account)

    def wait_ready(self, deadline: float = 30.0) -> None:
        if not comes_true(self._answers, deadline):
            raise self.failure(f"not ready after {deadline:g} s")

    def stop(self, deadline: float = 10.0) -> None:
        """End the server in its orderly way, or by force after the deadline."""
        if self._family is not None:
            self._family.stop(self.stop_signal, deadline)
            self._family = None

    def kill(self) -> None:
        """End the server as a power cut would."""
        if self._family is not None:
            self._family.kill()
            self._family = None

    def restart(self) -> None:
        """Stop, start and wait until ready."""
        self.stop()
        self.start()
        self.wait_ready()

    def freeze(self) -> None:
        """Let the server hang: it keeps its connections and answers nobody."""
        self._running().freeze()

    def thaw(self) -> None:
        self._running().thaw()

    def close(self) -> None:
        """End for good and delete the data. Nothing is worth an orderly end then."""
        self.kill()
        atexit.unregister(self._close_at_exit)
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, command: Sequence[str], *, text: str = "") -> None:
        """Run a preparing command to its end, as the account that will run the server."""
        with self.log_file.open("ab") as log:
            done = subprocess.run(
                command,
                cwd=self.folder,
                input=text.encode(),
                stdout=log,
                stderr=subprocess.STDOUT,
                user=self._account,
                group=self._account,
                extra_groups=None if self._account is None else [],
                check=False,
            )
        if done.returncode != 0:
            raise self.failure(f"{command[0]} failed with {done.returncode}")

    def failure(self, reason: str) -> ServiceFailed:
        """An error that shows what the server had to say last."""
        lines = self.log_file.read_text(errors="replace").splitlines() if self.log_file.exists() else []
        return ServiceFailed("\n".join([f"{self}: {reason}", *lines[-_LOG_TAIL:]]))

    def __enter__(self) -> Self:
        try:
            self.start()
            self.wait_ready()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(port={self.port})"

    def _running(self) -> Family:
        if self._family is None:
            raise RuntimeError(f"{self} does not run")
        return self._family

    def _answers(self) -> bool:
        code = self._running().exit_code
        if code is not None:
            raise self.failure(f"ended with {code}")
        return self.is_ready()

    def _close_at_exit(self) -> None:
        # A forked child of the test process inherits this handler, but not the server.
        if os.getpid() == self._owner:
            self.close()
