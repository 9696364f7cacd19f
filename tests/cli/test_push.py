import json
import signal
from pathlib import Path

import pytest

from onebus import Bus
from tests.cli.command import onebus, onebus_running, printed
from tests.services import RedisServer
from tests.services.port import free_port


def test_arguments_are_messages(store: str) -> None:
    done = onebus("push", "jobs", "one", "two words", "three")

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "pushed 3 messages\n")
    assert printed("consume", "jobs", "--no-follow") == ["one", "two words", "three"]


@pytest.mark.parametrize("arguments", [[], ["-"]])
def test_lines_of_stdin_are_messages(store: str, arguments: list[str]) -> None:
    done = onebus("push", "jobs", *arguments, given="one\n\nthree without an end")

    assert (done.returncode, done.stderr) == (0, "pushed 3 messages\n")
    assert printed("consume", "jobs", "--no-follow") == ["one", "", "three without an end"]


def test_nothing_given_is_nothing_pushed(store: str) -> None:
    assert onebus("push", "jobs").stderr == "pushed 0 messages\n"
    assert printed("count", "jobs") == ["0"]


def test_json_arrives_as_json(store: str) -> None:
    onebus("push", "jobs", "--json", given='{"a": [1, 2.5, null]}\n\n"text"\n12\n')

    messages = [json.loads(line)["data"] for line in printed("consume", "jobs", "--no-follow", "--json")]

    assert messages == [{"a": [1, 2.5, None]}, "text", 12]


def test_bad_json_is_told_with_its_line_and_the_rest_is_pushed(store: str) -> None:
    done = onebus("push", "jobs", "--json", given='{"a": 1}\nnonsense\n[1\n{"b": 2}\n')

    assert done.returncode == 1
    complaints = done.stderr.splitlines()
    assert complaints[0].startswith("error[invalid_argument]: line 2: Not JSON: ")
    assert complaints[1].startswith("error[invalid_argument]: line 3: Not JSON: ")
    assert complaints[2:] == ["pushed 2 messages"]
    assert printed("consume", "jobs", "--no-follow") == ['{"a":1}', '{"b":2}']


def test_strict_stops_at_the_first_bad_line(store: str) -> None:
    done = onebus("push", "jobs", "--json", "--strict", given="1\nnonsense\n3\n")

    assert (done.returncode, done.stderr.count("error["), done.stderr.splitlines()[-1]) == (1, 1, "pushed 1 message")
    assert printed("consume", "jobs", "--no-follow") == ["1"]


def test_a_line_that_is_too_long_is_told_and_the_rest_is_pushed(store: str) -> None:
    done = onebus("push", "jobs", given=f"short\n{'x' * 2_000_000}\nshort too\n")

    assert done.returncode == 1
    assert "error[payload_too_large]: line 2: " in done.stderr
    assert printed("consume", "jobs", "--no-follow") == ["short", "short too"]


def test_key_and_headers_are_those_of_every_message(store: str) -> None:
    onebus("push", "jobs", "a", "b", "--key", "k1", "--header", "x=1", "--header", "y=a=b")

    messages = [json.loads(line) for line in printed("consume", "jobs", "--no-follow", "--json")]

    assert [(one["data"], one["key"], one["headers"]) for one in messages] == [
        ("a", "k1", {"x": "1", "y": "a=b"}),
        ("b", "k1", {"x": "1", "y": "a=b"}),
    ]


@pytest.mark.parametrize(
    "arguments", [["--header", "no-value"], ["--delay", "-1"], ["--ttl", "0"], ["--delay", "soon"], ["--unknown"]]
)
def test_wrong_usage_has_exit_code_2(store: str, arguments: list[str]) -> None:
    assert onebus("push", "jobs", "x", *arguments).returncode == 2


def test_a_delayed_message_waits_for_its_time(store: str) -> None:
    onebus("push", "jobs", "later", "--delay", "1")
    onebus("push", "jobs", "much later", "--delay", "1000")
    onebus("push", "jobs", "now")

    assert printed("consume", "jobs", "--max", "2") == ["now", "later"]
    assert json.loads(printed("queues", "--json")[0])["delayed"] == 1


async def test_a_queue_lives_for_a_week_and_one_that_exists_keeps_its_ttl(store: str) -> None:
    onebus("push", "weekly", "x")
    onebus("push", "short", "x", "--ttl", "60")
    onebus("push", "short", "x")

    async with Bus(store) as bus:
        assert await bus.queue("weekly").ttl() == 7 * 24 * 3600
        assert await bus.queue("short").ttl() == 60


def test_what_was_read_before_ctrl_c_is_pushed(store: str) -> None:
    with onebus_running("push", "jobs") as push:
        assert push.stdin is not None
        push.stdin.write("one\ntwo\n")
        push.stdin.flush()
        while printed("queues", "--json") == [] or printed("count", "jobs") != ["2"]:
            pass
        push.send_signal(signal.SIGINT)
        _, errors = push.communicate(timeout=20)

    assert (push.returncode, errors) == (130, "pushed 2 messages\n")


def test_a_binary_line_comes_out_as_it_went_in(store: str, tmp_path: Path) -> None:
    onebus("push", "jobs", "\udcff\udcfe")

    (message,) = printed("peek", "jobs", "--json")
    assert (json.loads(message)["data"], json.loads(message)["encoding"]) == ("//4=", "base64")


def test_an_absent_store_is_one_clear_line() -> None:
    done = onebus("push", "jobs", "x", "--store", f"postgresql://127.0.0.1:{free_port()}/onebus")

    assert done.returncode == 1
    assert done.stderr.startswith("error[store_unavailable]: ")
    assert done.stderr.count("\n") == 1


def test_a_bad_name_is_one_clear_line(store: str) -> None:
    done = onebus("push", "a|b", "x")

    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith("error[invalid_name]: ")


@pytest.mark.xdist_group("redis")
def test_queues_are_spread_over_several_stores(store: str, redis: RedisServer) -> None:
    stores = ["--store", store, "--store", redis.url]
    names = [f"spread-{number}" for number in range(4)]

    for name in names:
        onebus("push", name, name, *stores)

    listed = [json.loads(line)["name"] for line in printed("queues", "spread-", "--json", *stores)]
    assert listed == names
