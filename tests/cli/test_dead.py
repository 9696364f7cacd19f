import json

from onebus import Bus
from tests.cli.command import onebus, printed


async def bury(store: str, *texts: str) -> None:
    """Push messages and reject each of them."""
    async with Bus(store) as bus, bus.queue("jobs", ttl=600) as queue:
        await queue.push_many(texts)
        async for message in queue.consume(max=len(texts), reliable=True):
            await message.reject(f"cannot do {message.data}")


async def test_dead_letters_are_shown_with_reason_and_attempts(store: str) -> None:
    await bury(store, "a", "b")

    assert printed("dead", "jobs") == ["1\t1\tcannot do a\ta", "2\t1\tcannot do b\tb"]
    assert printed("dead", "jobs", "-n", "1") == ["1\t1\tcannot do a\ta"]
    letter = json.loads(printed("dead", "jobs", "--json")[0])
    assert letter.pop("timestamp") > 0
    assert letter == {"id": 1, "data": "a", "attempts": 1, "reason": "cannot do a"}


async def test_redriven_letters_are_messages_again(store: str) -> None:
    await bury(store, "a", "b", "c")

    assert printed("redrive", "jobs", "--max", "2") == ["2"]
    assert [line.split("\t")[-1] for line in printed("dead", "jobs")] == ["c"]
    assert printed("consume", "jobs", "--no-follow") == ["a", "b"]
    assert [json.loads(line) for line in printed("redrive", "jobs", "--json")] == [{"name": "jobs", "redriven": 1}]
    assert printed("dead", "jobs") == []
    assert printed("consume", "jobs", "--no-follow") == ["c"]


async def test_dead_letters_outlive_their_queue(store: str) -> None:
    await bury(store, "a")
    async with Bus(store) as bus:
        await bus.link.store.drop("queue:jobs")

    assert json.loads(printed("queues", "--json")[0])["ttl"] is None
    assert len(printed("dead", "jobs")) == 1
    assert printed("redrive", "jobs") == ["1"]
    assert printed("consume", "jobs", "--no-follow") == ["a"]
    assert onebus("queues").stdout.split()[-2:] == ["7", "d"]
