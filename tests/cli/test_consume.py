import json
import signal
import time
from pathlib import Path
from uuid import uuid4

import pytest

from tests.cli.command import onebus, onebus_running, printed, shell
from tests.services import RedisServer

LINES = 50_000


def assert_everything_arrives(options: str, store: str, folder: Path) -> None:
    done = shell(
        f"set -o pipefail; seq {LINES} | onebus push jobs && "
        f"onebus consume jobs --no-follow {options} | cat > $FOLDER/out; seq {LINES} | cmp - $FOLDER/out",
        ONEBUS_STORE=store,
        FOLDER=str(folder),
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "", f"pushed {LINES} messages\n")


@pytest.mark.parametrize("options", ["", "--reliable"])
def test_many_lines_arrive_in_order_and_none_is_lost(options: str, store: str, tmp_path: Path) -> None:
    assert_everything_arrives(options, store, tmp_path)
    assert printed("count", "jobs") == ["0"]


@pytest.mark.xdist_group("redis")
def test_many_lines_arrive_through_redis(redis: RedisServer, tmp_path: Path) -> None:
    assert_everything_arrives("", redis.url, tmp_path)


@pytest.mark.parametrize("options", ["", "--reliable"])
@pytest.mark.parametrize("count", [3, 50])
def test_what_head_does_not_print_stays_in_the_queue(options: str, count: int, store: str) -> None:
    done = shell(
        f"seq 1000 | onebus push jobs 2>/dev/null; onebus consume jobs {options} | head -{count}; "
        "echo ${PIPESTATUS[0]}"
    )

    assert done.stdout.split() == [*map(str, range(1, count + 1)), "0"]
    assert done.stderr == ""
    rest = [json.loads(line) for line in printed("consume", "jobs", "--no-follow", "--json")]
    assert [message["data"] for message in rest] == [str(number) for number in range(count + 1, 1001)]
    assert {message["attempts"] for message in rest} == {1}


def test_it_ends_with_its_reader_even_if_no_more_messages_come(store: str) -> None:
    done = shell("onebus push jobs 1 2 3; onebus consume jobs | head -3")

    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n2\n3\n", "pushed 3 messages\n")


def test_a_reader_that_pauses_takes_nothing_and_ctrl_c_still_ends_it(store: str) -> None:
    onebus("push", "jobs", given="".join(f"{number}\n" for number in range(1000)))
    with onebus_running("consume", "jobs", "--reliable") as consume:
        assert consume.stdout is not None
        first = consume.stdout.readline()
        consume.send_signal(signal.SIGINT)
        seen = [first.strip(), *consume.stdout.read().split()]
        _, errors = consume.communicate(timeout=20)

    assert (consume.returncode, errors) == (130, "")
    assert seen == [str(number) for number in range(len(seen))]
    assert len(seen) <= 3
    assert printed("consume", "jobs", "--no-follow")[0] == str(len(seen))


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("options", [[], ["--reliable"]])
def test_signals_end_it_cleanly_and_nothing_is_lost(
    sent: signal.Signals, code: int, options: list[str], store: str
) -> None:
    total = 20_000
    onebus("push", "jobs", given="".join(f"{number}\n" for number in range(total)))
    with onebus_running("consume", "jobs", *options) as consume:
        assert consume.stdout is not None
        seen = [consume.stdout.readline() for _ in range(500)]

        consume.send_signal(sent)
        seen += consume.stdout.readlines()
        _, errors = consume.communicate(timeout=20)

    assert (consume.returncode, errors) == (code, "")
    left = printed("consume", "jobs", "--no-follow")
    assert "".join(seen).split() + left == [str(number) for number in range(total)]


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_end_it_while_it_waits(sent: signal.Signals, code: int, store: str) -> None:
    onebus("push", "jobs", "one")
    with onebus_running("consume", "jobs") as consume:
        assert consume.stdout is not None
        assert consume.stdout.readline() == "one\n"

        consume.send_signal(sent)
        rest, errors = consume.communicate(timeout=20)

    assert (consume.returncode, rest, errors) == (code, "", "")


def test_what_a_killed_reliable_consumer_held_is_not_lost(store: str) -> None:
    onebus("push", "jobs", "one", "two")
    with onebus_running("consume", "jobs", "--reliable", "--max", "2") as consume:
        assert consume.stdout is not None
        assert consume.stdout.readline() == "one\n"
        consume.kill()

    (state,) = [json.loads(line) for line in printed("queues", "--json")]
    assert state["waiting"] + state["held"] >= 1


def test_it_waits_for_a_queue_that_does_not_exist(store: str) -> None:
    with onebus_running("consume", "jobs", "--max", "1") as consume:
        while not printed("queues", "--json"):
            pass
        onebus("push", "jobs", "at last")

        shown, errors = consume.communicate(timeout=20)

    assert (consume.returncode, shown, errors) == (0, "at last\n", "")


def test_max_takes_no_more_than_that(store: str) -> None:
    onebus("push", "jobs", "1", "2", "3")

    assert printed("consume", "jobs", "--max", "2") == ["1", "2"]
    assert printed("count", "jobs") == ["1"]


def test_timeout_ends_it_when_nothing_comes(store: str) -> None:
    onebus("push", "jobs", "1")

    assert printed("consume", "jobs", "--timeout", "0.5") == ["1"]


def test_no_follow_sees_delayed_messages_that_are_due(store: str) -> None:
    onebus("push", "jobs", "later", "--delay", "0.001")

    assert printed("consume", "jobs", "--no-follow") == ["later"]


def test_json_tells_all_of_a_message(store: str) -> None:
    before = time.time()
    onebus("push", "jobs", "--json", '{"a": "ä"}', "--key", "k", "--header", "h=v")

    (line,) = printed("consume", "jobs", "--no-follow", "--json")

    message = json.loads(line)
    assert before - 1 < message.pop("timestamp") < time.time() + 1
    assert message == {"id": 1, "data": {"a": "ä"}, "attempts": 1, "key": "k", "headers": {"h": "v"}}


def test_bytes_are_written_as_they_are(store: str, tmp_path: Path) -> None:
    done = shell(
        "head -c 3000000 /dev/urandom > $FOLDER/in; onebus push jobs < $FOLDER/in 2>/dev/null;"
        "onebus consume jobs --no-follow > $FOLDER/out; head -c 3000000 $FOLDER/out | cmp - $FOLDER/in",
        FOLDER=str(tmp_path),
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_full_disk_is_one_clear_line_and_loses_nothing(store: str) -> None:
    onebus("push", "jobs", "1", "2")

    done = shell("onebus consume jobs --no-follow > /dev/full")

    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith("error[output_failed]: ")
    assert printed("consume", "jobs", "--no-follow") == ["1", "2"]


@pytest.mark.xdist_group("redis")
def test_a_message_travels_through_redis_while_it_waits(redis: RedisServer) -> None:
    name = f"jobs-{uuid4().hex}"
    with onebus_running("consume", name, "--json", "--store", redis.url) as consume:
        while not printed("queues", name, "--store", redis.url)[1:]:
            pass
        onebus("push", name, "hello", "--store", redis.url)
        assert consume.stdout is not None
        message = json.loads(consume.stdout.readline())

    assert (message["id"], message["data"]) == (1, "hello")
