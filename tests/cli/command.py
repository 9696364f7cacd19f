"""The `onebus` command as its users run it: as a process of its own."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

ONEBUS = (sys.executable, "-m", "onebus.cli")


def onebus(*arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    """Run the command to its end, with `given` as its stdin."""
    return subprocess.run([*ONEBUS, *arguments], input=given, capture_output=True, text=True, timeout=60, check=False)


def printed(*arguments: str, given: str = "") -> list[str]:
    """Run the command, which has to succeed, and return the lines of its stdout."""
    done = onebus(*arguments, given=given)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def shell(script: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a shell script in which ``onebus`` is the command."""
    function = f'onebus() {{ {sys.executable} -m onebus.cli "$@"; }}\n'
    return subprocess.run(
        ["bash", "-c", function + script],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@contextmanager
def onebus_running(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run the command beside the test; it does not outlive the test."""
    with subprocess.Popen(
        [*ONEBUS, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()
