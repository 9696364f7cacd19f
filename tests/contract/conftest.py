"""Every test in this folder runs on every store, against real servers that are started on demand."""

from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

from onebus.stores.base import Store, StoreOptions
from tests.backings import KINDS, Backing
from tests.clock import FakeClock


@pytest.fixture(params=[pytest.param(kind, marks=pytest.mark.xdist_group(kind)) for kind in KINDS])
async def backing(request: pytest.FixtureRequest) -> AsyncIterator[Backing]:
    """The place that the stores of one test share, as several processes would share a server."""
    backing = Backing(request.param, request.getfixturevalue)
    yield backing
    await backing.close()


@pytest.fixture
async def store(backing: Backing) -> Store:
    return await backing.open()


@pytest.fixture
async def other_store(backing: Backing, store: Store) -> Store:
    """A second client of the same place."""
    return await backing.open()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def timed_store(backing: Backing, clock: FakeClock) -> Store:
    """A store whose time is the `clock` of the test."""
    return await backing.open(StoreOptions(clock=clock))


@pytest.fixture
def log() -> str:
    return f"log:{uuid4().hex}"
