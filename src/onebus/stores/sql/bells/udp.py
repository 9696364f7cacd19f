"""The bell of databases that cannot wake anybody: datagrams between the clients.

Each open store has a UDP socket on the address from which it talks to the database, and registers it in a
table, along with a secret that it makes up. Whoever commits sends one of these to all of them:

    name \\n name …             these logs have grown
    \\0 tag name \\n news      this log has grown by this batch, see `News.pack`

The tag is a keyed hash of what follows it, under the secret of the receiver: only who may read the table can make
it. A forged datagram costs a look at the log, no more. Datagrams are not encrypted: where the connection to the
database is, news do not leave the machine. Where the network swallows datagrams, readers fall back to looking once in a
while by themselves.
"""

import asyncio
import logging
import secrets
import socket
from collections.abc import Mapping
from functools import cached_property, partial
from hashlib import blake2b
from hmac import compare_digest
from typing import Final

from onebus.stores.news import News, PackedNews
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
            host = await loop.run_in_executor(None, lambda: self._own_host)
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
        ring_at = partial(self._ring_at, transaction.grown, transaction.connection.is_encrypted)
        # The list of bells may still be on its way, so those that it named the last time come first.
        known = self._known
        for bell in known:
            ring_at(*bell)
        self._known = {(address, secret) for address, secret in transaction.bells if address != self._address}
        for bell in self._known - known:
            ring_at(*bell)

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

    def _ring_at(self, grown: Mapping[str, News | None], is_private: bool, address: str, secret: bytes) -> None:
        host, _, port = address.rpartition(":")
        try:
            if is_private and host != self._own_host:
                grown = dict.fromkeys(grown)
            for datagram in _datagrams(grown, secret):
                self._mouth.sendto(datagram, (host, int(port)))
        except OSError as error:
            _log.debug("a reader at %s could not be woken: %s", address, error)

    @cached_property
    def _own_host(self) -> str:
        """The address of this machine that faces the database; connecting UDP sends nothing."""
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
        self._heard({name.decode(errors="replace"): PackedNews(packed) if is_genuine else None})


def seal(tiding: bytes, secret: bytes) -> bytes:
    """Return a datagram that whoever has the secret believes."""
    return SEALED + blake2b(tiding, key=secret, digest_size=TAG_BYTES).digest() + tiding


def _datagrams(grown: Mapping[str, News | None], secret: bytes) -> list[bytes]:
    """Pack news, and where there are none, names, into datagrams that no network has to cut into pieces."""
    sealed: list[bytes] = []
    named: list[bytes] = []
    for log, news in grown.items():
        name = log.encode()
        packed = None if news is None else news.pack()
        if packed is not None and len(datagram := seal(name + b"\n" + packed, secret)) <= MAX_DATAGRAM_BYTES:
            sealed.append(datagram)
        elif named and len(named[-1]) + len(name) < MAX_DATAGRAM_BYTES:
            named[-1] += b"\n" + name
        else:
            named.append(name)
    return sealed + named
