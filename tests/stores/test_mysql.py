"""MySQL and MariaDB."""

from uuid import uuid4

import pytest

from onebus.stores import create_store
from tests.messages import numbered
from tests.services import MariaDbServer


@pytest.fixture
def log() -> str:
    return f"log:{uuid4().hex}"


async def test_the_clock_of_the_server_counts_milliseconds(mariadb: MariaDbServer, log: str) -> None:
    async with create_store(mariadb.url) as store:
        for _ in range(5):
            await store.append(log, numbered(1))

        assert any(batch.appended_ms % 1000 for batch in (await store.read(log, after=0)).batches)
