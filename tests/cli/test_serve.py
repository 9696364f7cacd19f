import os
import signal
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.cli.command import onebus, onebus_running
from tests.services.certificate import Certificate
from tests.services.patience import comes_true
from tests.services.port import free_port

PATIENCE_SECONDS = 30.0


@contextmanager
def serving(tmp_path: Path, *options: str) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """Run the server on a free port; gives the process and its address."""
    with onebus_running("serve", "--store", f"sqlite:///{tmp_path}/bus.db", "--port", "0", *options) as server:
        assert server.stdout is not None
        line = server.stdout.readline()
        assert line, server.stderr and server.stderr.read()
        yield server, next(word for word in line.split() if word.startswith(("http://", "https://"))).rstrip(";")


def broadcast(client: httpx.Client, data: str) -> httpx.Response:
    return client.post("/message-bus/broadcast", json={"channel": "/chat", "data": data})


def backlog(client: httpx.Client) -> list[str]:
    response = client.post("/message-bus/me/poll?dlp=t", json={"/chat": 0})
    assert response.status_code == 200
    return [message["data"] for message in response.json()]


def test_it_serves_until_it_is_interrupted(tmp_path: Path) -> None:
    with serving(tmp_path) as (server, address):
        health = httpx.get(f"{address}/healthz", timeout=PATIENCE_SECONDS).json()
        server.send_signal(signal.SIGINT)
        _, errors = server.communicate(timeout=PATIENCE_SECONDS)

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


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "example.org"])
def test_it_serves_nobody_but_this_machine_without_a_secret(host: str, tmp_path: Path) -> None:
    done = onebus("serve", "--store", f"sqlite:///{tmp_path}/bus.db", "--host", host)

    assert done.returncode == 1
    assert done.stderr.startswith(f"error[invalid_argument]: Whoever reaches {host} could use the bus.")
    assert not list(tmp_path.iterdir())


def test_whoever_does_not_know_the_secret_learns_only_that_the_server_is_well(tmp_path: Path) -> None:
    with serving(tmp_path, "--host", "0.0.0.0", "--secret", "correct horse") as (_, address):
        url = address.replace("0.0.0.0", "127.0.0.1")
        bearer = {"authorization": "Bearer correct horse"}
        with httpx.Client(base_url=url, timeout=PATIENCE_SECONDS) as client:
            refused = [
                client.get("/info"),
                client.get("/metrics"),
                client.get("/message-bus/me/poll"),
                broadcast(client, "no"),
                client.get("/info", headers={"authorization": "Bearer wrong"}),
                client.get("/info", auth=("anybody", "wrong")),
                client.get("/info", headers={"authorization": "Basic ???"}),
            ]
            health = client.get("/healthz")
            script = client.get("/onebus.js")
            welcome = client.get("/metrics", headers=bearer), client.get("/metrics", auth=("anybody", "correct horse"))

    assert {(one.status_code, one.json()["error"]["code"]) for one in refused} == {(401, "secret_needed")}
    assert refused[0].headers["www-authenticate"].startswith("Basic")
    assert (health.status_code, script.status_code) == (200, 200)
    assert [one.status_code for one in welcome] == [200, 200]


def test_pages_from_elsewhere_cannot_use_a_server_without_a_secret(tmp_path: Path) -> None:
    with (
        serving(tmp_path, "--origin", "https://friend.org") as (_, address),
        httpx.Client(base_url=address, timeout=PATIENCE_SECONDS) as client,
    ):
        # A page whose name was made to point here, and pages that send what a form would send.
        renamed = client.get("/info", headers={"host": "evil.org"})
        foreign = client.post("/message/new", data={"payload": "x"}, headers={"origin": "https://evil.org"})
        friend = client.post("/message/new", data={"payload": "x"}, headers={"origin": "https://friend.org"})
        own = client.post("/message/new", data={"payload": "x"}, headers={"origin": address})

    assert (renamed.status_code, renamed.json()["error"]["code"]) == (403, "host_denied")
    assert (foreign.status_code, foreign.json()["error"]["code"]) == (403, "origin_denied")
    assert (friend.json(), own.json()) == ({"id": 1}, {"id": 2})


def test_it_serves_over_tls(tmp_path: Path) -> None:
    folder = tmp_path / "certificate"
    folder.mkdir()
    certificate = Certificate(folder)
    options = ("--tls-certificate", str(certificate.file), "--tls-key", str(certificate.key_file))

    with serving(tmp_path, *options) as (_, address):
        trusted = ssl.create_default_context(cafile=str(certificate.ca_file))
        with httpx.Client(base_url=address, verify=trusted, timeout=PATIENCE_SECONDS) as client:
            broadcast(client, "hello")
            received = backlog(client)

    assert address.startswith("https://127.0.0.1:")
    assert received == ["hello"]


def test_half_of_tls_is_one_clear_line(tmp_path: Path) -> None:
    done = onebus("serve", "--tls-key", "key.pem", "--store", f"sqlite:///{tmp_path}/bus.db")

    assert done.returncode == 1
    assert done.stderr == "error[invalid_argument]: TLS needs both --tls-certificate and --tls-key.\n"


def test_whoever_is_held_gets_an_answer_when_it_stops(tmp_path: Path) -> None:
    with serving(tmp_path) as (server, address), httpx.Client(base_url=address, timeout=PATIENCE_SECONDS) as client:
        with (
            client.stream("POST", "/message-bus/one/poll", json={"/chat": -1}) as stream,
            client.stream("POST", "/message-bus/two/poll", json={"/chat": -1}) as other,
        ):
            frames, others = stream.iter_raw(), other.iter_raw()
            first = next(frames)
            next(others)
            server.terminate()
            rest, rests = b"".join(frames), b"".join(others)
        server.wait(PATIENCE_SECONDS)

    assert b"/__status" in first
    assert rest == rests == b"[]\r\n|\r\n"
    assert server.returncode == -signal.SIGTERM


def test_workers_share_the_port_and_are_replaced_when_they_die(tmp_path: Path) -> None:
    with serving(tmp_path, "--workers", "2") as (server, address):
        with httpx.Client(base_url=address, timeout=PATIENCE_SECONDS) as client:
            assert broadcast(client, "before").status_code == 200
        workers = children_of(server.pid)
        for pid in workers:
            os.kill(pid, signal.SIGKILL)
        assert comes_true(lambda: are_replaced(server.pid, workers), PATIENCE_SECONDS)
        with httpx.Client(base_url=address, timeout=PATIENCE_SECONDS) as client:
            after = backlog(client)
        server.terminate()
        _, errors = server.communicate(timeout=PATIENCE_SECONDS)

    assert len(workers) == 2
    assert after == ["before"]
    assert errors.count("is started again") == 2
    assert server.returncode == -signal.SIGTERM


def test_the_metrics_of_all_workers_are_added_up(tmp_path: Path) -> None:
    with serving(tmp_path, "--workers", "2") as (_, address):
        for number in range(10):
            # Each over a connection of its own, so that both workers get some.
            with httpx.Client(base_url=address, timeout=PATIENCE_SECONDS) as client:
                if number == 0:
                    broadcast(client, "counted")
                assert backlog(client) == ["counted"]

        counted = 'onebus_feed_messages_sent_total{transport="polling"} 10.0'
        assert comes_true(lambda: shows(address, counted), PATIENCE_SECONDS)


def children_of(pid: int) -> list[int]:
    """Return the workers of a server; the process that only looks after what they share is none."""
    children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [child for child in children if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]


def are_replaced(pid: int, old: list[int]) -> bool:
    return len(set(children_of(pid)) - set(old)) == len(old)


def shows(address: str, line: str) -> bool:
    return line in httpx.get(f"{address}/metrics", timeout=PATIENCE_SECONDS).text.splitlines()
