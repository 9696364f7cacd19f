import json
import signal
import socket
from pathlib import Path
from urllib.request import urlopen

from tests.cli.command import onebus, onebus_running
from tests.services.port import free_port


def test_it_serves_until_it_is_interrupted(tmp_path: Path) -> None:
    with onebus_running("serve", "--store", f"sqlite:///{tmp_path}/bus.db", "--port", "0") as server:
        assert server.stdout is not None
        address = next(word for word in server.stdout.readline().split() if word.startswith("http://"))

        with urlopen(f"{address}/healthz", timeout=20) as response:
            health = json.load(response)
        server.send_signal(signal.SIGINT)
        _, errors = server.communicate(timeout=20)

    assert address.startswith("http://127.0.0.1:")
    assert health["status"] == "ok"
    assert (server.returncode, errors) == (130, "")


def test_a_taken_port_is_one_clear_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        done = onebus("serve", "--store", f"sqlite:///{tmp_path}/bus.db", "--port", str(port))

    assert done.returncode == 1
    assert done.stderr.startswith(f"error[invalid_argument]: Port {port} of 127.0.0.1 cannot be used")
    assert done.stderr.count("\n") == 1


def test_an_absent_store_is_one_clear_line() -> None:
    done = onebus("serve", "--store", f"postgresql://127.0.0.1:{free_port()}/onebus", "--port", "0")

    assert done.returncode == 1
    assert done.stderr.startswith("error[store_unavailable]: ")
    assert done.stderr.count("\n") == 1
