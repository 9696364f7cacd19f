import json
import signal

import pytest

from onebus import Bus
from tests.cli.command import onebus, onebus_running, printed


def test_a_topic_is_created_published_to_consumed_and_deleted(store: str) -> None:
    assert printed("topic", "create", "clicks", "--partitions", "2") == []
    assert printed("topic", "list") == ["clicks"]
    assert printed("topic", "publish", "clicks", "a", "b", "--partition", "1") == ["1\t1", "1\t2"]
    assert printed("topic", "describe", "clicks")[0].split() == ["partition", "first", "last", "bytes"]

    assert printed("topic", "consume", "clicks", "g", "--max", "2") == ["a", "b"]
    (line,) = [line for line in printed("topic", "lag", "clicks", "g", "--json") if '"partition":1' in line]
    assert json.loads(line) == {"partition": 1, "position": 2, "last": 2, "lag": 0, "owner": "-"}

    printed("topic", "delete", "clicks", "--yes")
    assert printed("topic", "list") == []


@pytest.mark.parametrize("compact", [False, True])
async def test_a_topic_is_compacted_if_it_was_created_so(store: str, compact: bool) -> None:
    printed("topic", "create", "clicks", *(["--compact"] if compact else []))

    async with Bus(store) as bus:
        assert (await bus.topic("clicks").describe()).compact is compact


def test_a_group_is_sent_back(store: str) -> None:
    printed("topic", "publish", "clicks", given="one\ntwo\nthree\n")
    assert sorted(printed("topic", "consume", "clicks", "g", "--max", "3")) == ["one", "three", "two"]

    assert printed("topic", "seek", "clicks", "g", "--id", "1")[0].split() == ["partition", "position"]

    assert sorted(printed("topic", "consume", "clicks", "g", "--max", "3")) == ["one", "three", "two"]


def test_messages_with_a_key_are_in_one_partition(store: str) -> None:
    lines = printed("topic", "publish", "clicks", "a", "b", "c", "--key", "user-7")

    assert len({line.split("\t")[0] for line in lines}) == 1


def test_json_is_published_and_shown_with_all_that_is_known(store: str) -> None:
    assert printed("topic", "publish", "clicks", "--json", '{"a":1}', "--partition", "3") == ['{"partition":3,"id":1}']

    (line,) = printed("topic", "consume", "clicks", "g", "--json", "--max", "1")

    shown = json.loads(line)
    assert (shown["partition"], shown["id"], shown["data"]) == (3, 1, {"a": 1})


@pytest.mark.parametrize(
    "arguments",
    [
        ("describe", "nothing"),
        ("lag", "nothing", "g"),
        ("seek", "nothing", "g", "--id", "1"),
        ("delete", "nothing", "--yes"),
    ],
)
def test_a_topic_that_does_not_exist_is_an_error(store: str, arguments: tuple[str, ...]) -> None:
    done = onebus("topic", *arguments)

    assert done.returncode == 1
    assert done.stderr.startswith("error[topic_missing]: There is no topic 'nothing'.")


def test_a_topic_is_not_deleted_without_consent(store: str) -> None:
    printed("topic", "create", "clicks")

    assert onebus("topic", "delete", "clicks", given="n\n").returncode == 1
    assert printed("topic", "list") == ["clicks"]


def test_a_consumer_ends_when_nothing_comes_in_time(store: str) -> None:
    onebus("topic", "publish", "clicks", "one")

    assert printed("topic", "consume", "clicks", "g", "--timeout", "1") == ["one"]
    assert printed("topic", "consume", "clicks", "g", "--timeout", "0.2") == []


def test_ctrl_c_ends_a_consumer_and_leaves_the_group(store: str) -> None:
    with onebus_running("topic", "consume", "clicks", "g") as consumer:
        assert consumer.stderr is not None
        assert consumer.stderr.readline() == "reading clicks as a member of g\n"

        consumer.send_signal(signal.SIGINT)
        shown, errors = consumer.communicate(timeout=20)

    assert (consumer.returncode, shown, errors) == (130, "", "")
