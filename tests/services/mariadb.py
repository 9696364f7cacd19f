"""MariaDB."""

import os
from collections.abc import Sequence
from pathlib import Path

import pymysql

from tests.services.certificate import Certificate
from tests.services.process import Server, find_program

_NAME = "onebus"
_PASSWORD = "secret"

_SYSTEM_TABLES = Path("/usr/share/mysql")
_SYSTEM_FILES = ["mysql_system_tables.sql", "mysql_performance_tables.sql", "mysql_system_tables_data.sql"]

# One statement a line, as the bootstrap mode reads them.
_BEFORE = """\
CREATE DATABASE mysql;
USE mysql;
SET @auth_root_socket = NULL;
"""
_AFTER = f"""\
CREATE DATABASE {_NAME};
FLUSH PRIVILEGES;
CREATE USER {_NAME}@'%' IDENTIFIED BY '{_PASSWORD}';
GRANT ALL ON {_NAME}.* TO {_NAME}@'%';
"""


class MariaDbServer(Server):
    """One MariaDB with a database and a user named onebus; root has no password."""

    def __init__(self, *, tls: bool = False) -> None:
        super().__init__()
        self._data = self.folder / "data"
        self._certificate = Certificate(self.folder) if tls else None

    @property
    def url(self) -> str:
        return f"mysql://{_NAME}:{_PASSWORD}@127.0.0.1:{self.port}/{_NAME}"

    def prepare(self) -> None:
        """Do the work of mariadb-install-db, which needs the client package and loads the manual's help texts."""
        self._data.mkdir()
        tables = [(_SYSTEM_TABLES / name).read_text() for name in _SYSTEM_FILES]
        command = [*self._base_command(), "--bootstrap", "--innodb-flush-log-at-trx-commit=0"]
        self.run(command, text="\n".join([_BEFORE, *tables, _AFTER]))

    def command(self) -> Sequence[str]:
        network = [f"--port={self.port}", "--bind-address=127.0.0.1", "--skip-name-resolve"]
        files = [f"--socket={self.folder / 'socket'}", f"--pid-file={self.folder / 'pid'}"]
        return [*self._base_command(), *network, *files, *self._tls()]

    def is_ready(self) -> bool:
        try:
            pymysql.connect(
                host="127.0.0.1", port=self.port, user=_NAME, password=_PASSWORD, database=_NAME, connect_timeout=2
            ).close()
        except pymysql.OperationalError:
            return False
        return True

    def _tls(self) -> Sequence[str]:
        one = self._certificate
        return [] if one is None else [f"--ssl-ca={one.ca_file}", f"--ssl-cert={one.file}", f"--ssl-key={one.key_file}"]

    def _base_command(self) -> Sequence[str]:
        program = find_program("mariadbd", "mariadb-server-core")
        sizes = ["--innodb-log-file-size=16M", "--innodb-buffer-pool-size=32M"]
        # The server runs as root only when told so.
        account = ["--user=root"] if os.geteuid() == 0 else []
        # Debian configures this too; the built-in default is latin1.
        text = ["--character-set-server=utf8mb4"]
        # Servers that start at the same time would sweep each other's files from a common folder.
        folders = [f"--datadir={self._data}", f"--tmpdir={self.folder}"]
        return [program, "--no-defaults", *folders, *sizes, *text, *account]
