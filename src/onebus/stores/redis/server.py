"""The connections of a store to one Redis server, or to the master that sentinels name."""

from collections.abc import Sequence
from typing import Any, Final

from hiredis import pack_command
from redis.asyncio import Redis
from redis.asyncio.connection import AbstractConnection, Connection, ConnectionPool, SSLConnection
from redis.asyncio.sentinel import (
    Sentinel,
    SentinelConnectionPool,
    SentinelManagedConnection,
    SentinelManagedSSLConnection,
)

from onebus.stores.redis.address import Address
from onebus.stores.redis.connection import (
    MAX_CONNECTIONS,
    Argument,
    Connections,
    Node,
    connected,
    connection_settings,
)
from onebus.stores.redis.scripts import PROBE

SENTINEL_SECONDS: Final = 1.0
"""How long a sentinel may take before another one is asked."""


class ServerConnections(Connections):
    """To one server.

    Scripts travel on connections that are kept here: taking one from redis-py's pool and giving it back costs
    more time than packing a command and reading its answer. The pool is for everything else.
    """

    def __init__(self, address: Address, connect_seconds: float) -> None:
        super().__init__(address)
        self._pool = self._make_pool(address, connect_seconds)
        self._client = Redis(connection_pool=self._pool)
        self._idle: list[AbstractConnection] = []
        self._busy: set[AbstractConnection] = set()

    def _make_pool(self, address: Address, connect_seconds: float) -> ConnectionPool:
        host, port = address.hosts[0]
        return ConnectionPool(
            connection_class=SSLConnection if address.uses_tls else Connection,
            host=host,
            port=port,
            db=address.database,
            max_connections=MAX_CONNECTIONS,
            **connection_settings(address, address.login, connect_seconds),
        )

    async def nodes(self) -> list[Node]:
        return [self._client.execute_command]

    async def _close(self) -> None:
        await self._drop_idle()
        for connection in self._busy:
            await connection.disconnect(nowait=True)
        await self._client.aclose()
        await self._pool.aclose()

    async def _send(self, *command: Argument) -> Any:
        connection = await self._borrow()
        self._busy.add(connection)
        try:
            self._check_open()
            await connection.send_packed_command(pack_command(command))  # type: ignore[arg-type]
            return await connection.read_response()
        finally:
            # One that broke, or that did not get to read its answer, has been disconnected by redis-py.
            self._busy.discard(connection)
            self._idle.append(connection)
            if not self._is_open:
                await self._drop_idle()

    async def _borrow(self) -> AbstractConnection:
        if not self._idle:
            return await self._dial()
        connection = self._idle.pop()
        if connection.is_connected and await connection.can_read():
            await connection.disconnect(nowait=True)  # Redis has closed it
        return connection if connection.is_connected else await connected(connection)

    async def _drop_idle(self) -> None:
        while self._idle:
            await self._idle.pop().disconnect(nowait=True)

    async def _pipeline(self, commands: Sequence[Sequence[Argument]]) -> list[Any]:
        pipeline = self._client.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command)
        return list(await pipeline.execute())

    async def _publish(self, channel: bytes, payload: bytes) -> int:
        return int(await self._send("PUBLISH", channel, payload))

    async def _dial(self) -> AbstractConnection:
        return await connected(self._pool.make_connection())  # type: ignore[no-untyped-call]

    async def _probe(self) -> None:
        # Whoever is asked through an old connection may have ceased to be the master.
        await self._drop_idle()
        await self._pool.disconnect(inuse_connections=False)
        await self._send("EVAL", PROBE.text, 0)


class SentinelConnections(ServerConnections):
    """To the master that the sentinels name; each new connection asks them who that is."""

    def _make_pool(self, address: Address, connect_seconds: float) -> ConnectionPool:
        sentinel_seconds = min(SENTINEL_SECONDS, connect_seconds)
        sentinel_settings = connection_settings(address, address.sentinel_login, sentinel_seconds)
        sentinel_settings |= {"ssl": address.uses_tls, "socket_timeout": sentinel_seconds}
        self._sentinel = Sentinel(address.hosts, sentinel_kwargs=sentinel_settings)  # type: ignore[no-untyped-call]
        return SentinelConnectionPool(  # type: ignore[no-untyped-call]
            address.service,
            self._sentinel,
            connection_class=SentinelManagedSSLConnection if address.uses_tls else SentinelManagedConnection,
            db=address.database,
            max_connections=MAX_CONNECTIONS,
            **connection_settings(address, address.login, connect_seconds),
        )

    async def _close(self) -> None:
        await super()._close()
        await self._sentinel.aclose()
