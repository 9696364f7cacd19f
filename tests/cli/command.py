"""The `onebus` command as its users run it: as a process of its own."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

ONEBUS = (sys.executable, "-m", "onebus.cli")


def onebus(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    return subprocess.run([*ONEBUS, *arguments], capture_output=True, text=True, timeout=60, check=False)


@contextmanager
def onebus_running(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run the command beside the test; it does not outlive the test."""
    with subprocess.Popen([*ONEBUS, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()
