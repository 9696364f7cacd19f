import json
from select import select

import pytest

from onebus import Bus
from tests.cli.command import onebus, onebus_running, printed
from tests.services import RedisServer


@pytest.mark.parametrize("command", ["count", "tail", "peek", "dead", "redrive"])
def test_an_unknown_queue_is_one_clear_line(command: str, store: str) -> None:
    done = onebus(command, "nowhere")

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "error[no_such_queue]: There is no queue 'nowhere'. `onebus queues` lists those that exist.\n"
    assert printed("queues") == ["name  waiting  held  dead  delayed  ttl"]


def test_count_counts_what_waits(store: str) -> None:
    onebus("push", "jobs", "1", "2")

    assert printed("count", "jobs") == ["2"]
    assert [json.loads(line) for line in printed("count", "jobs", "--json")] == [{"name": "jobs", "waiting": 2}]


def test_tail_shows_the_newest_messages_and_leaves_them(store: str) -> None:
    onebus("push", "jobs", *map(str, range(1, 21)))

    assert printed("tail", "jobs") == [str(number) for number in range(11, 21)]
    assert printed("tail", "jobs", "-n", "2") == ["19", "20"]
    assert printed("tail", "jobs", "-n", "0") == []
    assert len(printed("tail", "jobs", "-n", "100")) == 20
    assert [json.loads(line)["id"] for line in printed("tail", "jobs", "-n", "2", "--json")] == [19, 20]
    assert printed("count", "jobs") == ["20"]


@pytest.mark.parametrize(("lines", "shown"), [("1", ["old", "new"]), ("0", ["new"])])
def test_tail_follows(lines: str, shown: list[str], store: str) -> None:
    onebus("push", "jobs", "older", "old")
    with onebus_running("tail", "jobs", "-n", lines, "--follow") as tail:
        assert tail.stdout is not None
        seen = [tail.stdout.readline().strip()] if lines == "1" else []
        while "new" not in seen:
            # A tail that has not begun yet does not show what is there already.
            onebus("push", "jobs", "new")
            if select([tail.stdout], [], [], 0.5)[0]:
                seen.append(tail.stdout.readline().strip())

    assert list(dict.fromkeys(seen)) == shown


def test_peek_shows_the_next_messages_and_not_those_that_were_consumed(store: str) -> None:
    onebus("push", "jobs", "1", "2", "3", "4")
    onebus("consume", "jobs", "--max", "1")

    assert printed("peek", "jobs") == ["2"]
    assert printed("peek", "jobs", "-n", "2") == ["2", "3"]
    assert printed("tail", "jobs") == ["2", "3", "4"]
    assert [json.loads(line)["data"] for line in printed("peek", "jobs", "-n", "9", "--json")] == ["2", "3", "4"]
    assert printed("consume", "jobs", "--no-follow") == ["2", "3", "4"]


async def test_queues_are_listed_with_what_is_in_them(store: str) -> None:
    onebus("push", "jobs-a", "1", "2", "--ttl", "90")
    onebus("push", "jobs-a", "3", "--delay", "100")
    onebus("push", "other", "x")
    async with Bus(store) as bus, bus.queue("jobs-a") as queue:
        async for message in queue.consume(max=1, reliable=True):
            await message.reject("no")

    assert printed("queues") == [
        "name    waiting  held  dead  delayed   ttl",
        "jobs-a        1     0     1        1  90 s",
        "other         1     0     0        0   7 d",
    ]
    assert [json.loads(line) for line in printed("queues", "jobs", "--json")] == [
        {"name": "jobs-a", "waiting": 1, "held": 0, "dead": 1, "delayed": 1, "ttl": 90.0}
    ]


@pytest.mark.xdist_group("redis")
def test_it_looks_into_redis(redis: RedisServer) -> None:
    onebus("push", "looked-at", "1", "2", "3", "--store", redis.url)
    onebus("consume", "looked-at", "--max", "1", "--store", redis.url)

    assert printed("peek", "looked-at", "--store", redis.url) == ["2"]
    assert printed("tail", "looked-at", "--store", redis.url) == ["2", "3"]
    assert printed("queues", "looked-at", "--store", redis.url)[1].split() == [
        "looked-at",
        "2",
        "0",
        "0",
        "0",
        "7",
        "d",
    ]
