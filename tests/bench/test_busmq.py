"""A run of the benchmark that is too short to tell anything but that all of it works."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.busmq import MANY_QUEUES, QUEUES, Plan
from bench.peers.busmq.package import FOLDER, VERSION, install
from bench.queues import MESSAGE
from bench.sides import MESSAGE_BYTES
from tests.conftest import needing
from tests.services import MissingService, ServiceFailed

ROOT = Path(__file__).parents[2]
BUSMQ = f"busmq {VERSION}"
TRAFFIC = f"2 processes x {QUEUES} queues"
MANY = f"2 processes x {MANY_QUEUES:,} queues".replace(",", " ")

ROWS = [
    (f"{TRAFFIC}: pushed", BUSMQ, "≥ 5 x"),
    (f"{TRAFFIC}: consumed", BUSMQ, "≥ 5 x"),
    (f"{TRAFFIC}: the last cycle", "the first cycle", "≥ 0.9 x"),
    (f"{MANY}: pushed and consumed", f"the same with {QUEUES} queues", "≥ 0.7 x"),
    ("1 process x 1 queue, push only", BUSMQ, "≥ 10 x"),
    ("1 process x 1 queue, consume only", BUSMQ, "≥ 10 x"),
    (f"{TRAFFIC}, reliable: pushed", BUSMQ, None),
    (f"{TRAFFIC}, reliable: consumed", BUSMQ, "≥ 10 x"),
    ("latency p50, 100 messages/s", BUSMQ, "≤ 1 x"),
    ("latency p99, 100 messages/s", BUSMQ, "≤ 1 x"),
]

HALVES = [(BUSMQ, 1), (BUSMQ, 2), ("onebus", 1)]


@pytest.fixture
def _installed() -> None:
    with needing(MissingService, ServiceFailed):
        install()


@pytest.mark.usefixtures("_installed", "redis")
def test_a_tiny_run_prints_every_row_and_writes_every_figure(tmp_path: Path) -> None:
    file = tmp_path / "busmq.jsonl"
    command = [sys.executable, "-m", "bench", "busmq", "--cycles", "1", "--seconds", "0.2", "--json", str(file)]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=170, check=False)

    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    compared = [(line["what"], line["peer"], line["target"]) for line in lines if line.get("peer")]
    assert compared == ROWS
    assert all(what in done.stdout and peer in done.stdout for what, peer, _ in ROWS)
    # Each side reports its cycles: the peer in two halves, around ours.
    cycles = [(line["what"], line["side"], line["cycle"]) for line in lines if "cycle" in line]
    assert cycles == [
        *((TRAFFIC, side, cycle) for side, cycle in HALVES),
        (MANY, f"onebus, {QUEUES} queues", 1),
        (MANY, "onebus", 1),
        *((f"{TRAFFIC}, reliable", side, cycle) for side, cycle in HALVES),
    ]


def test_both_sides_are_measured_for_about_as_many_cycles() -> None:
    assert [Plan(cycles).half_cycles for cycles in (1, 2, 3, 10)] == [1, 1, 2, 5]


def test_messages_have_the_size_they_are_said_to_have() -> None:
    assert len(MESSAGE) == MESSAGE_BYTES


def test_the_lock_file_pins_every_package_and_names_no_registry() -> None:
    lock = json.loads((FOLDER / "package-lock.json").read_text())

    packages = [package for name, package in lock["packages"].items() if name]
    assert lock["packages"]["node_modules/busmq"]["version"] == VERSION
    assert all("integrity" in package and "resolved" not in package for package in packages)
