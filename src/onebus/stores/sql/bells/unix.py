"""Bells of processes that share a file: datagrams to sockets in a folder beside it.

The folder is the register: whoever wants to hear puts a socket there, whoever rings sends to every
socket. A socket whose process is gone refuses the datagram and is swept away.
"""

import asyncio
import errno
import os
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from onebus.stores.sql.bells.base import Bell, Heard, Lost, RunTransaction
from onebus.stores.sql.transaction import Transaction

MAX_DATAGRAM_BYTES: Final = 60_000
SHORTEST_QUEUE: Final = 10
"""Linux queues at least this many datagrams per socket (net.unix.max_dgram_qlen) and drops the rest."""

SETTLED_NS: Final = 100_000_000
"""How long ago a folder must have changed for a second change to be told from the first."""


class UnixBell(Bell):
    def __init__(self, folder: Path, client: str) -> None:
        self._folder = folder
        self._name = f"{client}.sock"
        self._ear: socket.socket | None = None
        self._mouth = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._mouth.setblocking(False)
        self._folder_fd = -1
        self._known: list[str] = []
        self._changed_ns = 0

    async def open(self, heard: Heard, lost: Lost, run: RunTransaction) -> None:
        if self._ear is not None:
            return
        self._folder.mkdir(exist_ok=True)
        ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        ear.setblocking(False)
        ear.bind(self._address(self._name))
        self._ear = ear
        asyncio.get_running_loop().add_reader(ear.fileno(), self._hear, ear, heard)

    async def close(self) -> None:
        if self._ear is not None:
            asyncio.get_running_loop().remove_reader(self._ear.fileno())
            self._ear.close()
            self._ear = None
            with suppress(FileNotFoundError):
                (self._folder / self._name).unlink()
        self._mouth.close()
        if self._folder_fd >= 0:
            os.close(self._folder_fd)
            self._folder_fd = -1

    def ring(self, transaction: Transaction) -> None:
        if not transaction.grown:
            return
        try:
            names = self._names()
        except FileNotFoundError:
            return
        datagram = "\n".join(transaction.grown).encode()
        if len(datagram) > MAX_DATAGRAM_BYTES:
            datagram = b""
        for name in names:
            if name != self._name:
                self._send(name, datagram)

    def _names(self) -> list[str]:
        """Return the names of all sockets. Every commit asks, so the folder is read only when it has changed."""
        changed_ns = os.stat(self._folder).st_mtime_ns  # noqa: PTH116 - half the cost of Path.stat
        if changed_ns != self._changed_ns:
            # Of two changes at about the same time, the clock of a file system tells only the first.
            is_settled = time.time_ns() - changed_ns > SETTLED_NS
            self._known = os.listdir(self._folder)  # noqa: PTH208 - half the cost of iterdir
            self._changed_ns = changed_ns if is_settled else 0
        return self._known

    def _send(self, name: str, datagram: bytes) -> None:
        try:
            self._mouth.sendto(datagram, self._address(name))
        except ConnectionRefusedError:
            with suppress(FileNotFoundError):
                (self._folder / name).unlink()
        except OSError as error:
            # A full queue belongs to a process that is about to wake all its readers; a socket that has just
            # been closed needs no ring.
            if error.errno not in (errno.EAGAIN, errno.ENOBUFS, errno.ENOENT):
                raise

    def _hear(self, ear: socket.socket, heard: Heard) -> None:
        names: set[str] = set()
        datagrams = 0
        while True:
            try:
                datagram = ear.recv(MAX_DATAGRAM_BYTES)
            except BlockingIOError:
                break
            datagrams += 1
            names.update(datagram.decode(errors="replace").split("\n"))
        heard(None if "" in names or datagrams >= SHORTEST_QUEUE else dict.fromkeys(names))

    def _address(self, name: str) -> str:
        """Return the path of a socket; one too long for a socket address is reached through an open folder."""
        path = str(self._folder / name)
        if len(os.fsencode(path)) < 100:
            return path
        if self._folder_fd < 0:
            self._folder_fd = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        return f"/proc/self/fd/{self._folder_fd}/{name}"
