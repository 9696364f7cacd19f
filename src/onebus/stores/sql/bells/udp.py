"""The bell of databases that cannot wake anybody: datagrams between the clients.

Each open store has a UDP socket on the address from which it talks to the database, and registers it in a
table. Whoever commits sends the names of the logs to all of them. Where the network swallows datagrams,
readers fall back to looking once in a while by themselves. A forged datagram costs a look, no more.
"""

import asyncio
import logging
import socket
from collections.abc import Iterable
from typing import Final

from onebus.stores.sql.bells.base import Bell, Heard, Lost, RunTransaction
from onebus.stores.sql.inserts import upsert
from onebus.stores.sql.tables import bells
from onebus.stores.sql.transaction import Transaction

_log = logging.getLogger(__name__)

MAX_DATAGRAM_BYTES: Final = 1400
REGISTERED_MS: Final = 60_000


class UdpBell(Bell):
    def __init__(self, database_host: str, database_port: int) -> None:
        self._database = (database_host, database_port)
        self._mouth = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._mouth.setblocking(False)
        self._transport: asyncio.DatagramTransport | None = None
        self._address = ""

    async def open(self, heard: Heard, lost: Lost, run: RunTransaction) -> None:
        if self._transport is None:
            loop = asyncio.get_running_loop()
            host = await loop.run_in_executor(None, self._own_host)
            self._transport, _ = await loop.create_datagram_endpoint(lambda: _Ear(heard), local_addr=(host, 0))
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
            transaction.bells = [address for (address,) in transaction.execute(transaction.lookups.bells)]

    def ring(self, transaction: Transaction) -> None:
        for datagram in _datagrams(transaction.grown):
            for address in transaction.bells:
                if address != self._address:
                    self._send(address, datagram)

    def refresh(self, transaction: Transaction) -> None:
        transaction.execute(transaction.lookups.sweep_bells)
        if self._address:
            transaction.execute(
                upsert(transaction.dialect_name, bells, "expires_ms"),
                {"address": self._address, "expires_ms": transaction.now_ms() + REGISTERED_MS},
            )

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
    def __init__(self, heard: Heard) -> None:
        self._heard = heard

    def datagram_received(self, data: bytes, addr: object) -> None:
        self._heard(dict.fromkeys(data.decode(errors="replace").split("\n")))


def _datagrams(logs: Iterable[str]) -> list[bytes]:
    """Pack names into datagrams that no network has to cut into pieces."""
    packed: list[bytes] = []
    for name in (log.encode() for log in logs):
        if packed and len(packed[-1]) + len(name) < MAX_DATAGRAM_BYTES:
            packed[-1] += b"\n" + name
        else:
            packed.append(name)
    return packed
