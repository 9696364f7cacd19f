"""Each example runs as its readers run it, and does what its text says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"

SHOWN = {
    "producer_consumer.py": [
        "pushed, the last one has id 5",
        "1: {'hello': 'world'}",
        "2: message number 2",
        "3: message number 3",
        "4: message number 4",
        "5: message number 5",
    ],
    "reliable_worker.py": [
        "job 4 failed at attempt 1: this one never works",
        "job 4 failed at attempt 2: this one never works",
        "job 4 failed at attempt 3: this one never works",
        "Ann and Ben did 7 jobs",
        "put aside: job 4, this one never works",
        "once more: 1 job is back in the queue",
    ],
    "restaurant.py": [
        "waiter: Good evening! What would you like?",
        "guest: Soup",
        "waiter: Pardon?",
        "guest: The soup, please",
        "waiter: Certainly.",
        "The guest has left.",
    ],
    "session.py": [
        "saved: user, cart, visits",
        "found: True ann [] 1",
        "saved: cart",
        "the web sees: ['book']",
        "nobody knows session-43: False",
    ],
    "news.py": [
        "Ann reads 2: it will rain",
        "Ann reads 3: it rains",
        "Ben reads 3: it rains",
        "Ben reads 4: take an umbrella",
        "Ann reads 4: take an umbrella",
        "the memory of /weather: ['it will rain', 'it rains', 'take an umbrella']",
    ],
    "topics.py": [
        "two members counted: {'ann': 10, 'ben': 10, 'cleo': 10}",
        "ann's pages, in order: [0, 3, 6, 9, 12, 15, 18, 21, 24, 27]",
        "not counted: 0",
        "sent back to the beginning: 30",
    ],
    "broker.py": [
        "20 readings are stored",
        "partition 0, in order: [0, 4, 8, 12, 16]",
        "partition 1, in order: [1, 5, 9, 13, 17]",
        "partition 2, in order: [2, 6, 10, 14, 18]",
        "partition 3, in order: [3, 7, 11, 15, 19]",
    ],
    "work.py": [
        "job 1 done at attempt 1",
        "job 2 done at attempt 1",
        "job 3 done at attempt 2",
        "job 4 done at attempt 1",
        "job 5 done at attempt 1",
    ],
    "request_reply.py": [
        "No one serves 'squares'. Start a server, and ask again.",
        "7 x 7 = 49",
        "TypeError: 'seven' is not a number",
        "3 2 1 lift-off",
    ],
}
"""What the examples of the bus print, on any store; who prints first between two peers is up to them."""

SERVING = ("web_django.py", "web_starlette.py")
"""Examples that serve until they are stopped: see test_web_examples.py."""


def run(example: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, EXAMPLES / example, *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_every_example_is_tested() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == {"demo.py", "log.py", "pipeline.py", *SHOWN, *SERVING}


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_the_log_example_appends_reads_claims_and_settles(kind: str, tmp_path: Path) -> None:
    shown = run("log.py", *([f"sqlite:///{tmp_path}/bus.db"] if kind == "sqlite" else []))

    assert shown.splitlines() == [
        "appended 3 messages, the first has id 1",
        "read:",
        "  1: hello",
        "  2: good morning",
        "  3: moin",
        "claimed 3 messages for 30 seconds",
        "settled them: the work is done",
    ]


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.parametrize("example", SHOWN)
def test_an_example_of_the_bus_prints_what_it_says(example: str, kind: str, tmp_path: Path) -> None:
    shown = run(example, *([f"sqlite:///{tmp_path}/bus.db"] if kind == "sqlite" else []))

    assert sorted(shown.splitlines()) == sorted(SHOWN[example])


def test_the_demo_shows_what_it_promises() -> None:
    shown = run("demo.py")

    assert "100,000 messages pushed" in shown
    assert "100,000 messages consumed and acknowledged" in shown
    assert "In order, without a gap: True." in shown
    assert re.search(r"kill -9 \d+\n.*job 1 came back after .* Attempt 2\.\n", shown)
    assert "All ten are done; 0 wait." in shown
    assert re.search(r"Came \d+ ms after it was due", shown)
    assert "Put aside: 'unreadable', because 'I cannot read it'." in shown
    assert re.search(r"50 messages came after [\d.]+ ms", shown)
    assert "waiter: What would you like?\n  guest: Soup, please." in shown
    assert "7 x 7 = 49" in shown
    assert "Loaded elsewhere: ['book']." in shown
    assert "good  durability" in shown
