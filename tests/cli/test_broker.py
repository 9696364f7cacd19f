import signal
from pathlib import Path

import pytest

from tests.cli.command import onebus, onebus_running
from tests.services.port import free_port

PATIENCE_SECONDS = 30.0


def addresses() -> tuple[str, ...]:
    consumers, publishers, management = free_port(), free_port(), free_port()
    return (
        *("--consumers", f"tcp://127.0.0.1:{consumers}"),
        *("--publishers", f"tcp://127.0.0.1:{publishers}"),
        *("--management", f"http://127.0.0.1:{management}"),
    )


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_it_serves_until_it_is_ended(tmp_path: Path, number: signal.Signals, code: int) -> None:
    with onebus_running("broker", "--store", f"sqlite:///{tmp_path}/bus.db", *addresses()) as broker:
        assert broker.stdout is not None
        line = broker.stdout.readline()
        broker.send_signal(number)
        _, errors = broker.communicate(timeout=PATIENCE_SECONDS)

    assert line.startswith("onebus is a broker at http://127.0.0.1:")
    assert (broker.returncode, errors) == (code, "")


def test_a_taken_port_is_one_clear_line(tmp_path: Path) -> None:
    given = addresses()
    with onebus_running("broker", "--store", f"sqlite:///{tmp_path}/one.db", *given) as broker:
        assert broker.stdout is not None
        broker.stdout.readline()

        done = onebus("broker", "--store", f"sqlite:///{tmp_path}/two.db", *given)

    assert done.returncode == 1
    assert done.stderr == f"error[invalid_argument]: {given[1]} cannot be used: Address already in use.\n"


@pytest.mark.parametrize(
    ("option", "address"),
    [
        ("--consumers", "tcp://0.0.0.0:9998"),
        ("--publishers", "tcp://0.0.0.0:9997"),
        ("--management", "http://0.0.0.0:9999"),
    ],
)
def test_it_serves_nobody_but_this_machine_unless_that_is_said(tmp_path: Path, option: str, address: str) -> None:
    done = onebus("broker", "--store", f"sqlite:///{tmp_path}/bus.db", *addresses(), option, address)

    assert done.returncode == 1
    assert done.stderr.startswith("error[invalid_argument]: ")
    assert "secret" in done.stderr
    assert not list(tmp_path.iterdir())
