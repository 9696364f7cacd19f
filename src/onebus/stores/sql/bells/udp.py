"""The bell of databases that cannot wake anybody: datagrams between the clients.

Each open store has a UDP socket on the address from which it talks to the database, and registers it in a
table, along with a secret that it makes up. Whoever commits sends one of these to all of them:

    name \\n name …             these logs have grown
    \\0 tag name \\n news      this log has grown by this batch, see `News`

The tag is a keyed hash of what follows it, under the secret of the receiver: only who may read the table can make
it. A forged datagram costs a look at the log, no more. Where the network swallows datagrams, readers fall back to
looking once in a while by themselves.
"""

import asyncio
import logging
import secrets
import socket
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from hmac import compare_digest
from typing import Final

from onebus.stores.news import News
from onebus.stores.sql.bells.base import Bell, Heard, Lost, RunTransaction
from onebus.stores.sql.inserts import upsert
from onebus.stores.sql.tables import bells
from onebus.stores.sql.transaction import Transaction

_log = logging.getLogger(__name__)

MAX_DATAGRAM_BYTES: Final = 1400
REGISTERED_MS: Final = 60_000
SECRET_BYTES: Final = 16
TAG_BYTES: Final = 16
SEALED: Final = b"\0"
"""How a datagram with news begins. No name does."""


class UdpBell(Bell):
    def __init__(self, database_host: str, database_port: int) -> None:
        self._database = (database_host, database_port)
        self._mouth = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._mouth.setblocking(False)
        self._transport: asyncio.DatagramTransport | None = None
        self._address = ""
        self._secret = secrets.token_bytes(SECRET_BYTES)
        self._known: set[tuple[str, bytes]] = set()

    async def open(self, heard: Heard, lost: Lost, run: RunTransaction) -> None:
        if self._transport is None:
            loop = asyncio.get_running_loop()
            host = await loop.run_in_executor(None, self._own_host)
            self._transport, _ = await loop.create_datagram_endpoint(
                lambda: _Ear(heard, self._secret), local_addr=(host, 0)
            )
            own_host, own_port = self._transport.get_extra_info("sockname")[:2]
            self._address = f"{own_host}:{own_port}"
        await run(self.refresh)

    async def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
            self._transport = None
        self._mouth.close()

    def prepare(self, transaction: Transaction) -> None:
        if transaction.grown:
            rows = transaction.execute(transaction.lookups.bells)
            transaction.bells = [(address, secret) for address, secret in rows]

    def ring(self, transaction: Transaction) -> None:
        tidings, names = _sorted_out(transaction.grown)
        hints = _datagrams(names)
        # The list of bells may still be on its way, so those that it named the last time come first.
        known = self._known
        for bell in known:
            self._ring_at(bell, tidings, hints)
        self._known = {(address, secret) for address, secret in transaction.bells if address != self._address}
        for bell in self._known - known:
            self._ring_at(bell, tidings, hints)

    def refresh(self, transaction: Transaction) -> None:
        transaction.execute(transaction.lookups.sweep_bells)
        if self._address:
            transaction.execute(
                upsert(transaction.dialect_name, bells, "secret", "expires_ms"),
                {
                    "address": self._address,
                    "secret": self._secret,
                    "expires_ms": transaction.now_ms() + REGISTERED_MS,
                },
            )

    def _ring_at(self, bell: tuple[str, bytes], tidings: Sequence[bytes], hints: Sequence[bytes]) -> None:
        address, secret = bell
        for tiding in tidings:
            self._send(address, seal(tiding, secret))
        for hint in hints:
            self._send(address, hint)

    def _send(self, address: str, datagram: bytes) -> None:
        host, _, port = address.rpartition(":")
        try:
            self._mouth.sendto(datagram, (host, int(port)))
        except OSError as error:
            _log.debug("a reader at %s could not be woken: %s", address, error)

    def _own_host(self) -> str:
        """Return the address of this machine that faces the database; connecting UDP sends nothing."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(self._database)
            return str(probe.getsockname()[0])


class _Ear(asyncio.DatagramProtocol):
    def __init__(self, heard: Heard, secret: bytes) -> None:
        self._heard = heard
        self._secret = secret

    def datagram_received(self, data: bytes, addr: object) -> None:
        if not data.startswith(SEALED):
            self._heard(dict.fromkeys(data.decode(errors="replace").split("\n")))
            return
        sealed = data[len(SEALED) + TAG_BYTES :]
        name, _, packed = sealed.partition(b"\n")
        # Not forged, maybe: the sender may know the secret of somebody who had this address before.
        is_genuine = compare_digest(data, seal(sealed, self._secret))
        self._heard({name.decode(errors="replace"): News.unpack(packed) if is_genuine else None})


def seal(tiding: bytes, secret: bytes) -> bytes:
    """Return a datagram that whoever has the secret believes."""
    return SEALED + blake2b(tiding, key=secret, digest_size=TAG_BYTES).digest() + tiding


def _sorted_out(grown: Mapping[str, News | None]) -> tuple[list[bytes], list[str]]:
    """Return the news that fit into a datagram, and the names of the other logs."""
    tidings: list[bytes] = []
    names: list[str] = []
    for name, news in grown.items():
        tiding = b"" if news is None else name.encode() + b"\n" + news.pack()
        if tiding and len(SEALED) + TAG_BYTES + len(tiding) <= MAX_DATAGRAM_BYTES:
            tidings.append(tiding)
        else:
            names.append(name)
    return tidings, names


def _datagrams(logs: Iterable[str]) -> list[bytes]:
    """Pack names into datagrams that no network has to cut into pieces."""
    packed: list[bytes] = []
    for name in (log.encode() for log in logs):
        if packed and len(packed[-1]) + len(name) < MAX_DATAGRAM_BYTES:
            packed[-1] += b"\n" + name
        else:
            packed.append(name)
    return packed
