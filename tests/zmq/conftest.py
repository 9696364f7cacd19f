from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

from onebus import Bus
from onebus.zmq import Broker
from tests.zmq.addresses import Addresses


@pytest.fixture
def addresses() -> Addresses:
    return Addresses()


@pytest.fixture
async def bus() -> AsyncIterator[Bus]:
    async with Bus(f"memory://{uuid4().hex}") as bus:
        yield bus


@pytest.fixture
async def broker(bus: Bus, addresses: Addresses) -> AsyncIterator[Broker]:
    async with Broker(bus, **addresses.of_broker) as broker:
        yield broker
