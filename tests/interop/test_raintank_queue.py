"""Publishers and consumers of raintank-queue in Node.js, against `onebus broker`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import needing, running
from tests.eventually import eventually
from tests.faults.program import Program
from tests.interop.queue import consuming, publish
from tests.interop.script import install
from tests.services import BrokerServer, MissingService, ServiceFailed

pytestmark = pytest.mark.xdist_group("interop")


@pytest.fixture(scope="module")
def _installed() -> None:
    with needing(MissingService, ServiceFailed):
        install()


@pytest.fixture
def broker(tmp_path: Path, _installed: None) -> Iterator[BrokerServer]:
    with running(BrokerServer(f"sqlite:///{tmp_path}/bus.db")) as server:
        yield server


def received(consumer: Program) -> dict[int, list[int]]:
    """Return the numbers that a consumer got, for each partition."""
    numbers: dict[int, list[int]] = {}
    for line in consumer.lines:
        if line[0] == "got":
            numbers.setdefault(int(line[2]), []).append(int(line[3]))
    return numbers


async def test_node_consumers_share_a_topic_and_rebalance_when_another_one_joins(broker: BrokerServer) -> None:
    async with consuming(broker, "topic1", "test") as one, consuming(broker, "topic1", "other") as other:
        everything = ["ready", *map(str, range(10))]
        assert await one.line("ready") == everything
        assert await other.line("ready") == everything
        await publish(broker, "topic1", range(500), partitions=10)
        await one.said("got", 500)
        before = len(one.lines)

        async with consuming(broker, "topic1", "test") as two:
            second = await two.line("ready")
            first = await one.line("ready", after=before)
            await publish(broker, "topic1", range(500, 1000), partitions=10)
            await other.said("got", 1000)
            await one.said("got", 750)
            await two.said("got", 250)

    assert (first, second) == (["ready", *"01234"], ["ready", *"56789"])
    assert received(other) == {partition: list(range(partition, 1000, 10)) for partition in range(10)}
    assert received(two) == {partition: list(range(500 + partition, 1000, 10)) for partition in range(5, 10)}
    assert received(one) == {
        partition: list(range(partition, 1000 if partition < 5 else 500, 10)) for partition in range(10)
    }


async def test_a_node_consumer_that_dies_leaves_its_partitions_to_the_others(broker: BrokerServer) -> None:
    async with consuming(broker, "topic1", "test") as one:
        await one.line("ready")
        async with consuming(broker, "topic1", "test") as two:
            await two.line("ready")
            known = len(one.lines)
        await publish(broker, "topic1", range(100), partitions=10)
        await one.said("got", 100)

    assert one.lines[known:]
    assert received(one) == {partition: list(range(partition, 100, 10)) for partition in range(10)}


async def test_a_node_consumer_goes_on_after_the_broker_was_killed(broker: BrokerServer) -> None:
    async with consuming(broker, "topic1", "test") as consumer:
        await consumer.line("ready")
        await publish(broker, "topic1", range(100), partitions=10)
        await consumer.said("got", 100)
        known = len(consumer.lines)
        broker.kill()
        broker.start()
        broker.wait_ready()
        await publish(broker, "topic1", range(100, 200), partitions=10)
        await consumer.line("ready", after=known)

        async def has_all() -> bool:
            # Some of them may have come twice.
            return len({number for got in received(consumer).values() for number in got}) == 200

        await eventually(has_all, deadline_seconds=30)

    numbers = {partition: list(dict.fromkeys(got)) for partition, got in received(consumer).items()}
    assert numbers == {partition: list(range(partition, 200, 10)) for partition in range(10)}
