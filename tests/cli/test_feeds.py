import json
import signal

from tests.cli.command import onebus, onebus_running, printed


def test_what_is_published_is_printed_by_whoever_subscribed(store: str) -> None:
    with onebus_running("subscribe", "/chat", "--max", "2") as subscriber:
        assert subscriber.stderr is not None
        assert subscriber.stderr.readline() == "subscribed to /chat\n"

        assert printed("publish", "/chat", "one", "two") == ["1", "2"]
        shown, _ = subscriber.communicate(timeout=20)

    assert (subscriber.returncode, shown) == (0, "one\ntwo\n")


def test_what_was_published_before_can_be_read_later(store: str) -> None:
    assert printed("publish", "/chat", given="a\nb\nc\n") == ["1", "2", "3"]

    assert printed("subscribe", "/chat", "--last-id", "0", "--max", "3") == ["a", "b", "c"]
    assert printed("subscribe", "/chat", "--last-id", "-2", "--max", "1") == ["c"]


def test_json_is_published_and_shown_with_all_that_is_known(store: str) -> None:
    assert printed("publish", "/chat", "--json", '{"a": 1}') == ['{"message_id":1}']

    (line,) = printed("subscribe", "--json", "--last-id", "0", "--max", "1")

    assert json.loads(line) == {
        "channel": "/chat",
        "message_id": 1,
        "global_id": 1,
        "data": {"a": 1},
        "site_id": None,
        "user_ids": None,
        "group_ids": None,
        "client_ids": None,
    }
    assert printed("subscribe", "/chat", "--last-id", "0", "--max", "1") == ['{"a":1}']


def test_bad_json_is_told_with_its_line_and_the_others_are_published(store: str) -> None:
    done = onebus("publish", "/chat", "--json", given="nonsense\n1\n")

    assert (done.returncode, done.stdout) == (1, '{"message_id":1}\n')
    assert done.stderr.startswith("error[invalid_argument]: line 1: Not JSON: ")


def test_ctrl_c_ends_a_subscription(store: str) -> None:
    with onebus_running("subscribe", "/chat") as subscriber:
        assert subscriber.stderr is not None
        subscriber.stderr.readline()

        subscriber.send_signal(signal.SIGINT)
        shown, errors = subscriber.communicate(timeout=20)

    assert (subscriber.returncode, shown, errors) == (130, "", "")
