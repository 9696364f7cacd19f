"""Real servers for the tests: started on demand, on free ports, in folders of their own, stopped at the end."""

import os
import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, settings

from tests.services import MariaDbServer, MissingService, PostgresServer, RedisCluster, RedisSentinel, RedisServer

settings.register_profile("onebus", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("onebus")

# A shell that runs the tests in the background has them ignore Ctrl-C, and programs that they start would do so, too.
signal.signal(signal.SIGINT, signal.default_int_handler)

Service = TypeVar("Service")


@contextmanager
def needing(*absent: type[Exception]) -> Iterator[None]:
    """Do what needs something that may not be installed; then skip on a laptop and fail in CI."""
    try:
        yield
    except absent as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(error))


@contextmanager
def running(server: AbstractContextManager[Service]) -> Iterator[Service]:
    """Run a server, which may not be installed."""
    with needing(MissingService):
        started = server.__enter__()
    try:
        yield started
    finally:
        server.__exit__(None, None, None)


@pytest.fixture(scope="session")
def redis() -> Iterator[RedisServer]:
    with running(RedisServer()) as server:
        yield server


@pytest.fixture(scope="session")
def redis_cluster() -> Iterator[RedisCluster]:
    with running(RedisCluster()) as server:
        yield server


@pytest.fixture(scope="session")
def redis_sentinel() -> Iterator[RedisSentinel]:
    with running(RedisSentinel()) as server:
        yield server


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with running(PostgresServer()) as server:
        yield server


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDbServer]:
    with running(MariaDbServer()) as server:
        yield server
