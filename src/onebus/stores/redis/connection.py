"""The connections of a store to its Redis: to one server, or to the master that sentinels name."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Final, TypeAlias, TypeVar

from hiredis import pack_command
from redis.asyncio import Redis
from redis.asyncio.connection import AbstractConnection, Connection, ConnectionPool, SSLConnection
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import (
    Sentinel,
    SentinelConnectionPool,
    SentinelManagedConnection,
    SentinelManagedSSLConnection,
)
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisClusterException, RedisError

from onebus.stores.redis.address import Address, Login, Mode
from onebus.stores.redis.failures import translate
from onebus.stores.redis.scripts import PROBE, Script

MAX_CONNECTIONS: Final = 16
MAX_CONNECT_SECONDS: Final = 5.0
READ_BYTES: Final = 1024 * 1024
SCAN_COUNT: Final = 1000

Argument: TypeAlias = bytes | str | int | float
Node: TypeAlias = Callable[..., Awaitable[Any]]
"""Executes a command on one server."""

T = TypeVar("T")

DRIVER_ERRORS: Final = (RedisError, RedisClusterException, OSError)


class Wide:
    """Lets a connection take in a large answer in few steps: asyncio would stop at 64 KiB each time."""

    def _connection_arguments(self) -> dict[str, Any]:
        return {**super()._connection_arguments(), "limit": READ_BYTES}  # type: ignore[misc]


class WideConnection(Wide, Connection):
    pass


class WideSSLConnection(Wide, SSLConnection):
    pass


class WideSentinelConnection(Wide, SentinelManagedConnection):
    pass


class WideSentinelSSLConnection(Wide, SentinelManagedSSLConnection):
    pass


class Connections(ABC):
    """Runs scripts and commands, at most `MAX_CONNECTIONS` at a time, and says in onebus's words what fails.

    Nothing is ever sent twice: when a connection breaks, nobody knows whether Redis has done what it was told.
    """

    def __init__(self, address: Address) -> None:
        self.url = address.display
        self._turns = asyncio.Semaphore(MAX_CONNECTIONS)

    async def run(self, script: Script, keys: Sequence[bytes], *arguments: Argument) -> Any:
        async with self._turns:
            try:
                return await self._send("EVALSHA", script.digest, len(keys), *keys, *arguments)
            except NoScriptError:
                pass  # Redis has been restarted, or never saw it; nothing has been done
            except DRIVER_ERRORS as error:
                raise translate(error, self.url) from error
            return await self._attempt(self._send("EVAL", script.text, len(keys), *keys, *arguments))

    async def expiries(self, keys: Sequence[bytes]) -> list[int | None]:
        """Return when each of some logs or records expires, None for one that does not exist."""
        async with self._turns:
            values = await self._attempt(self._pipeline([("HGET", key, "expires") for key in keys]))
            return [None if value is None else int(value) for value in values]

    async def keys(self, pattern: str) -> AsyncIterator[list[bytes]]:
        """Yield all keys that match, page by page; a key may come more than once."""
        for node in await self._attempt(self.nodes()):
            cursor: int | None = None
            while cursor != 0:
                async with self._turns:
                    scan = node("SCAN", cursor or 0, "MATCH", pattern, "COUNT", SCAN_COUNT)
                    cursor, page = await self._attempt(scan)
                yield page

    async def publish(self, channel: bytes, payload: bytes) -> int:
        """Hand a payload to everybody who listens and return how many connections that is."""
        async with self._turns:
            return await self._attempt(self._publish(channel, payload))

    async def dial(self) -> AbstractConnection:
        """Return a connection that belongs to the caller."""
        return await self._attempt(self._dial())

    async def probe(self) -> None:
        """Ask for a sign of life, on connections that are known to be fresh."""
        await self._attempt(self._probe())

    @abstractmethod
    async def nodes(self) -> list[Node]:
        """Return the servers that hold data."""

    @abstractmethod
    async def close(self) -> None: ...

    @abstractmethod
    async def _send(self, *command: Argument) -> Any: ...

    @abstractmethod
    async def _pipeline(self, commands: Sequence[Sequence[Argument]]) -> list[Any]: ...

    @abstractmethod
    async def _publish(self, channel: bytes, payload: bytes) -> int: ...

    @abstractmethod
    async def _dial(self) -> AbstractConnection: ...

    @abstractmethod
    async def _probe(self) -> None: ...

    async def _attempt(self, operation: Awaitable[T]) -> T:
        try:
            return await operation
        except DRIVER_ERRORS as error:
            raise translate(error, self.url) from error


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

    def _make_pool(self, address: Address, connect_seconds: float) -> ConnectionPool:
        host, port = address.hosts[0]
        return ConnectionPool(
            connection_class=WideSSLConnection if address.uses_tls else WideConnection,
            host=host,
            port=port,
            db=address.database,
            max_connections=MAX_CONNECTIONS,
            **connection_settings(address, address.login, connect_seconds),
        )

    async def nodes(self) -> list[Node]:
        return [self._client.execute_command]

    async def close(self) -> None:
        await self._drop_idle()
        await self._client.aclose()
        await self._pool.aclose()

    async def _send(self, *command: Argument) -> Any:
        connection = await self._borrow()
        try:
            await connection.send_packed_command(pack_command(command))  # type: ignore[arg-type]
            return await connection.read_response()
        finally:
            # One that broke, or that did not get to read its answer, has been disconnected by redis-py.
            self._idle.append(connection)

    async def _borrow(self) -> AbstractConnection:
        if not self._idle:
            return await self._dial()
        connection = self._idle.pop()
        if connection.is_connected and await connection.can_read():
            await connection.disconnect(nowait=True)  # Redis has closed it
        if not connection.is_connected:
            await connection.connect()  # type: ignore[no-untyped-call]
        return connection

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
        connection: AbstractConnection = self._pool.make_connection()  # type: ignore[no-untyped-call]
        await connection.connect()  # type: ignore[no-untyped-call]
        return connection

    async def _probe(self) -> None:
        # Whoever is asked through an old connection may have ceased to be the master.
        await self._drop_idle()
        await self._pool.disconnect(inuse_connections=False)
        await self._send("EVAL", PROBE.text, 0)


class SentinelConnections(ServerConnections):
    """To the master that the sentinels name; each new connection asks them who that is."""

    def _make_pool(self, address: Address, connect_seconds: float) -> ConnectionPool:
        sentinel_settings = connection_settings(address, address.sentinel_login, connect_seconds)
        # A sentinel that hangs must not keep the others from being asked.
        sentinel_settings |= {"ssl": address.uses_tls, "socket_timeout": connect_seconds}
        self._sentinel = Sentinel(address.hosts, sentinel_kwargs=sentinel_settings)  # type: ignore[no-untyped-call]
        return SentinelConnectionPool(  # type: ignore[no-untyped-call]
            address.service,
            self._sentinel,
            connection_class=WideSentinelSSLConnection if address.uses_tls else WideSentinelConnection,
            db=address.database,
            max_connections=MAX_CONNECTIONS,
            **connection_settings(address, address.login, connect_seconds),
        )

    async def close(self) -> None:
        await super().close()
        await self._sentinel.aclose()


def connection_settings(address: Address, login: Login, connect_seconds: float) -> dict[str, Any]:
    """Return what redis-py wants to know of every connection.

    Calls have a deadline of their own, which a time-out of the socket would only make slower.
    """
    settings: dict[str, Any] = {
        "username": login.username,
        "password": login.password,
        "socket_timeout": None,
        "socket_connect_timeout": connect_seconds,
        "socket_read_size": READ_BYTES,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
        "driver_info": None,
    }
    if address.uses_tls:
        settings |= {
            "ssl_ca_certs": address.ca_file,
            "ssl_cert_reqs": "required" if address.checks_certificate else "none",
            "ssl_check_hostname": address.checks_certificate,
        }
    return settings


def make_connections(address: Address, deadline_seconds: float) -> Connections:
    connect_seconds = min(MAX_CONNECT_SECONDS, deadline_seconds)
    match address.mode:
        case Mode.SINGLE:
            return ServerConnections(address, connect_seconds)
        case Mode.SENTINEL:
            return SentinelConnections(address, connect_seconds)
        case Mode.CLUSTER:
            from onebus.stores.redis.cluster import ClusterConnections

            return ClusterConnections(address, connect_seconds)
