import json
import signal

import pytest

from tests.cli.command import onebus, onebus_running, printed
from tests.services import RedisServer


def assert_heard(*options: str) -> None:
    with onebus_running("listen", "news", "--max", "2", *options) as listen:
        assert listen.stderr is not None
        assert listen.stderr.readline() == "listening to news\n"

        assert printed("publish-signal", "news", "one", "two", *options) == ["1", "1"]
        shown, _ = listen.communicate(timeout=20)

    assert (listen.returncode, shown) == (0, "one\ntwo\n")


def test_what_is_published_is_heard(store: str) -> None:
    assert_heard()


@pytest.mark.xdist_group("redis")
def test_what_is_published_through_redis_is_heard(redis: RedisServer) -> None:
    assert_heard("--store", redis.url)


def test_json_is_published_and_heard_as_json(store: str) -> None:
    with onebus_running("listen", "news", "--max", "1", "--json") as listen:
        assert listen.stderr is not None
        listen.stderr.readline()

        assert printed("publish-signal", "news", "--json", given='{"a": 1}\n') == ['{"receivers":1}']
        shown, _ = listen.communicate(timeout=20)

    assert json.loads(shown) == {"data": {"a": 1}}


def test_bad_json_is_told_with_its_line(store: str) -> None:
    done = onebus("publish-signal", "news", "--json", given="nonsense\n1\n")

    assert (done.returncode, done.stdout) == (1, '{"receivers":0}\n')
    assert done.stderr.startswith("error[invalid_argument]: line 1: Not JSON: ")


def test_ctrl_c_ends_listening(store: str) -> None:
    with onebus_running("listen", "news") as listen:
        assert listen.stderr is not None
        listen.stderr.readline()

        listen.send_signal(signal.SIGINT)
        shown, errors = listen.communicate(timeout=20)

    assert (listen.returncode, shown, errors) == (130, "", "")
