"""PostgreSQL."""

import shutil
import signal
from collections.abc import Mapping, Sequence
from urllib.parse import quote

import psycopg

from tests.services.process import Server, find_program

_PACKAGE = "postgresql"
_NAME = "onebus"


class PostgresServer(Server):
    """One PostgreSQL with a database and a superuser named onebus; it asks for a password if given one."""

    # SIGTERM would wait for the clients to leave.
    stop_signal = signal.SIGINT
    account = "postgres"

    def __init__(self, settings: Mapping[str, str] | None = None, password: str | None = None) -> None:
        super().__init__()
        self.password = password
        self._settings = settings or {}
        self._data = self.folder / "data"

    @property
    def url(self) -> str:
        login = _NAME if self.password is None else f"{_NAME}:{quote(self.password, safe='')}"
        return f"postgresql://{login}@127.0.0.1:{self.port}/{_NAME}"

    def prepare(self) -> None:
        initdb = find_program("initdb", _PACKAGE)
        place = [f"--pgdata={self._data}", f"--username={_NAME}", "--no-sync"]
        self.run([initdb, *place, "--locale=C", "--encoding=UTF8", *self._login_options()])
        postgres = find_program("postgres", _PACKAGE)
        self.run([postgres, "--single", "-F", "-D", str(self._data), "postgres"], text=f"CREATE DATABASE {_NAME}\n")

    def command(self) -> Sequence[str]:
        settings = {
            "port": str(self.port),
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(self.folder),
            "shared_buffers": "64MB",
            # In the data folder, because files in /dev/shm would stay behind when the server is killed.
            "dynamic_shared_memory_type": "mmap",
            **self._settings,
        }
        options = [f"--{name}={value}" for name, value in settings.items()]
        return [find_program("postgres", _PACKAGE), "-D", str(self._data), *options]

    def is_ready(self) -> bool:
        try:
            psycopg.connect(self.url, connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def close(self) -> None:
        # A killed server leaves a segment of System V shared memory behind.
        self.stop()
        super().close()

    def _login_options(self) -> Sequence[str]:
        if self.password is None:
            return ["--auth=trust"]
        password_file = self.folder / "password"
        password_file.write_text(self.password)
        if self._account is not None:
            shutil.chown(password_file, self._account)
        return ["--auth=scram-sha-256", f"--pwfile={password_file}"]
