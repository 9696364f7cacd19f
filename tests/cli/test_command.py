import re
import subprocess
import sys
from pathlib import Path

import pytest

from onebus import __version__
from onebus.cli.output import redacted
from tests.cli.command import onebus, shell


def test_it_tells_its_version() -> None:
    done = onebus("--version")

    assert (done.returncode, done.stdout) == (0, f"onebus {__version__}\n")


def test_without_a_command_it_shows_what_it_can_do() -> None:
    done = onebus()

    assert "doctor" in done.stdout + done.stderr
    assert "serve" in done.stdout + done.stderr


def test_it_starts_without_loading_stores_and_servers() -> None:
    heavy = {"asyncio", "sqlalchemy", "msgspec", "uvicorn", "redis", "rich"}
    program = f"import sys, onebus.cli; print(sorted({heavy!r} & set(sys.modules)))"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("redis://localhost:6379/0", "redis://localhost:6379/0"),
        ("redis://:geheim@localhost:6379", "redis://:***@localhost:6379"),
        ("postgresql://me:ge:he/i@m@host/db is away", "postgresql://me:***@host/db is away"),
        ("postgresql://host/db?password=geheim&x=1", "postgresql://host/db?password=***&x=1"),
        ("redis://[::1]:6379 or redis://[user:password@]host", "redis://[::1]:6379 or redis://[user:password@]host"),
        ("mysql://me@host/db", "mysql://me@host/db"),
    ],
)
def test_passwords_in_urls_are_blotted_out(text: str, shown: str) -> None:
    assert redacted(text) == shown


def test_the_first_example_of_the_documentation_does_what_it_says(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    script, shown = re.findall(r"```(?:sh|text)\n(.*?)```", page, re.DOTALL)[:2]

    done = shell(f"cd {tmp_path}\n{script}")

    said = [line.partition("  # ")[2] for line in script.splitlines() if "  # " in line]
    assert (done.returncode, done.stderr.splitlines()) == (0, said[:1])
    assert done.stdout.splitlines() == [*said[1:], *shown.splitlines()]


@pytest.mark.parametrize(
    "command",
    ["push", "consume", "tail", "peek", "count", "queues", "dead", "redrive", "publish-signal", "listen"],
)
def test_help_has_an_example_and_tells_where_the_store_is(command: str) -> None:
    shown = onebus(command, "--help").stdout

    assert "Example: " in shown
    assert "ONEBUS_STORE" in shown
