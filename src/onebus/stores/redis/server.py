"""The connections of a store to one Redis server, or to the master that sentinels name."""

import asyncio
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
from onebus.stores.redis.pipe import Pipe
from onebus.stores.redis.scripts import PROBE

MAX_PIPES: Final = 2
"""Two, so that a large answer on one does not hold up the small ones on the other."""
SENTINEL_SECONDS: Final = 1.0
"""How long a sentinel may take before another one is asked."""


class ServerConnections(Connections):
    """To one server.

    Scripts of all callers share a few pipes: taking a connection from redis-py's pool and giving it back costs more
    time than packing a command and reading its answer. The pool is for everything else.
    """

    def __init__(self, address: Address, connect_seconds: float) -> None:
        super().__init__(address)
        self._pool = self._make_pool(address, connect_seconds)
        self._client = Redis(connection_pool=self._pool)
        self._pipes: list[Pipe] = []
        self._dialling = asyncio.Lock()

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
        await self._drop_pipes()
        await self._client.aclose()
        await self._pool.aclose()

    async def _send(self, *command: Argument) -> Any:
        pipe = self._free_pipe() or await self._new_pipe()
        self._check_open()
        return await pipe.ask(pack_command(command))  # type: ignore[arg-type]

    async def _transaction(self, commands: Sequence[Sequence[Argument]]) -> list[Any] | None:
        pipe = self._free_pipe() or await self._new_pipe()
        self._check_open()
        together = [("MULTI",), *commands, ("EXEC",)]
        answers: list[Any] = await pipe.ask_together([pack_command(command) for command in together])  # type: ignore[arg-type]
        return answers

    def _free_pipe(self) -> Pipe | None:
        """Return the pipe with the least to do, or None if there had better be another one."""
        least: Pipe | None = None
        for pipe in self._pipes:
            if pipe.is_open:
                if not pipe.waiting:
                    return pipe
                if least is None or pipe.waiting < least.waiting:
                    least = pipe
        return least if len(self._pipes) == MAX_PIPES else None

    async def _new_pipe(self) -> Pipe:
        async with self._dialling:
            # Somebody else may have dialled meanwhile.
            pipe = self._free_pipe()
            if pipe is None:
                for ended in [pipe for pipe in self._pipes if not pipe.is_open]:
                    self._pipes.remove(ended)
                    await ended.close()
                pipe = Pipe(await self._dial())
                self._pipes.append(pipe)
            if not self._is_open:
                # It was closed while this was dialled.
                await self._drop_pipes()
            return pipe

    async def _drop_pipes(self) -> None:
        pipes, self._pipes = self._pipes, []
        for pipe in pipes:
            await pipe.close()

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
        await self._drop_pipes()
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
