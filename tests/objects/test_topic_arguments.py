"""What topics and their consumers do not accept."""

from typing import Any

import pytest

from onebus import Bus
from onebus.errors import AlreadyConsuming, InvalidArgument, InvalidName


@pytest.mark.parametrize("bad", ["", "a|b"])
async def test_bad_names_are_refused(local_bus: Bus, bad: str) -> None:
    with pytest.raises(InvalidName):
        local_bus.topic(bad)
    with pytest.raises(InvalidName):
        local_bus.topic("good").consume(bad)


@pytest.mark.parametrize("count", [0, -1, 100_000])
async def test_a_topic_has_some_partitions_and_not_too_many(local_bus: Bus, count: int) -> None:
    with pytest.raises(InvalidArgument):
        local_bus.topic("t", partitions=count)


async def test_one_loop_at_a_time(local_bus: Bus) -> None:
    topic = local_bus.topic("t", partitions=1)
    await topic.publish("a")
    async with topic.consume("g") as consumer:
        async for _ in consumer:
            with pytest.raises(AlreadyConsuming):
                await anext(aiter(consumer))
            break


@pytest.mark.parametrize("options", [{"start": "middle"}, {"lease_seconds": 0}, {"max_messages": 0}])
async def test_bad_options_are_refused(local_bus: Bus, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        local_bus.topic("t").consume("g", **options)
