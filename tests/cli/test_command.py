import subprocess
import sys

import pytest

from onebus import __version__
from onebus.cli.output import redacted
from tests.cli.command import onebus


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
