"""What all ways to reach a Redis have in common."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Final, TypeAlias, TypeVar

from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, RedisClusterException, RedisError

from onebus.stores.redis.address import Address, Login
from onebus.stores.redis.failures import translate
from onebus.stores.redis.scripts import Script

MAX_CONNECTIONS: Final = 16
SCAN_COUNT: Final = 1000

Argument: TypeAlias = bytes | str | int | float
Node: TypeAlias = Callable[..., Awaitable[Any]]
"""Executes a command on one server."""

T = TypeVar("T")

DRIVER_ERRORS: Final = (RedisError, RedisClusterException, OSError)


def evaluation(script: Script, keys: Sequence[bytes], *arguments: Argument) -> Sequence[Argument]:
    """Return the command that runs a script, for `Connections.run_together`."""
    # By its text: if Redis did not know it, the commands beside it would be carried out all the same.
    return "EVAL", script.text, len(keys), *keys, *arguments


class Connections(ABC):
    """Runs scripts and commands, so many at a time, and says in onebus's words what fails.

    Nothing is ever sent twice: when a connection breaks, nobody knows whether Redis has done what it was told.
    """

    def __init__(self, address: Address) -> None:
        self.url = address.display
        self._turns = asyncio.Semaphore(MAX_CONNECTIONS)
        self._is_open = False

    def open(self) -> None:
        self._is_open = True

    async def close(self) -> None:
        """Disconnect; calls that are under way, or still wait for their turn, fail."""
        self._is_open = False
        await self._close()

    async def run(self, script: Script, keys: Sequence[bytes], *arguments: Argument) -> Any:
        try:
            return await self._send("EVALSHA", script.digest, len(keys), *keys, *arguments)
        except NoScriptError:
            # Redis has been restarted, or never saw it; nothing has been done.
            return await self._attempt(self._send("EVAL", script.text, len(keys), *keys, *arguments))
        except DRIVER_ERRORS as error:
            raise translate(error, self.url) from error

    async def run_together(self, *commands: Sequence[Argument]) -> list[Any] | None:
        """Carry out commands with nobody in between, and return their answers; None where that cannot be done.

        What plain commands send and return never is in the hands of Lua, which looks at each byte of what it gets.
        """
        answers = await self._attempt(self._transaction(commands))
        for answer in answers or ():
            if isinstance(answer, Exception):
                raise translate(answer, self.url) from answer
        return answers

    async def values(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return what lies at some keys of one place."""
        found: list[bytes | None] = await self._attempt(self._send("MGET", *keys))
        return found

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

    async def now_ms(self) -> int:
        """Return the time of Redis."""
        node, *_ = await self._attempt(self.nodes())
        seconds, microseconds = await self._attempt(node("TIME"))
        return int(seconds) * 1000 + int(microseconds) // 1000

    async def publish(self, channel: bytes, payload: bytes) -> int:
        """Hand a payload to everybody who listens and return how many connections that is."""
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
    async def _close(self) -> None: ...

    @abstractmethod
    async def _send(self, *command: Argument) -> Any: ...

    async def _transaction(self, commands: Sequence[Sequence[Argument]]) -> list[Any] | None:
        """Do several things at once and return the answers, each of which may be an error; None if it is impossible."""
        return None

    @abstractmethod
    async def _pipeline(self, commands: Sequence[Sequence[Argument]]) -> list[Any]: ...

    @abstractmethod
    async def _publish(self, channel: bytes, payload: bytes) -> int: ...

    @abstractmethod
    async def _dial(self) -> AbstractConnection: ...

    @abstractmethod
    async def _probe(self) -> None: ...

    def _check_open(self) -> None:
        if not self._is_open:
            raise RedisConnectionError("the store has been closed")

    async def _attempt(self, operation: Awaitable[T]) -> T:
        try:
            return await operation
        except DRIVER_ERRORS as error:
            raise translate(error, self.url) from error


async def connected(connection: AbstractConnection) -> AbstractConnection:
    try:
        await connection.connect()  # type: ignore[no-untyped-call]
    except BaseException:
        # redis-py leaves a connection open when it is cancelled between dialling and logging in.
        await connection.disconnect(nowait=True)
        raise
    return connection


def connection_settings(address: Address, login: Login, connect_seconds: float) -> dict[str, Any]:
    """Return what redis-py wants to know of every connection.

    Calls have a deadline of their own, which a time-out of the socket would only make slower.
    """
    settings: dict[str, Any] = {
        "username": login.username,
        "password": login.password,
        "socket_timeout": None,
        "socket_connect_timeout": connect_seconds,
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
