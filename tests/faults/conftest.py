"""Faults are tried on every store that outlives a process, each with a server of its own."""

from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.conftest import running
from tests.services import MariaDbServer, PostgresServer, RedisServer

AnyServer = RedisServer | PostgresServer | MariaDbServer

SERVERS: dict[str, Callable[[], AnyServer]] = {
    "redis": lambda: RedisServer(append_only=True),
    "postgres": PostgresServer,
    "mariadb": MariaDbServer,
}


@pytest.fixture(params=[pytest.param(kind, marks=pytest.mark.xdist_group(kind)) for kind in SERVERS])
def server(request: pytest.FixtureRequest) -> Iterator[AnyServer]:
    """A server that the test may stop, kill and freeze."""
    server = SERVERS[request.param]()
    with running(server):
        yield server


@pytest.fixture(
    params=[
        pytest.param(kind, marks=pytest.mark.xdist_group(kind)) for kind in ("sqlite", "redis", "postgres", "mariadb")
    ]
)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A place that outlives processes."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/bus.db"
    return str(request.getfixturevalue(request.param).url)


@pytest.fixture(
    params=[pytest.param(kind, marks=pytest.mark.xdist_group(kind)) for kind in ("sqlite", *SERVERS)],
)
def new_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A place in which onebus has never been."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/bus.db"
        return
    server = SERVERS[request.param]()
    with running(server):
        yield server.url


@pytest.fixture
def log() -> str:
    return f"log:{uuid4().hex}"
