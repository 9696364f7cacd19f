"""The tests of the JavaScript client that need no browser, in Node.js."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.services.process import MissingService, find_program

HERE = Path(__file__).parent
TESTS = sorted(HERE.glob("*.test.js"))


def find(program: str, package: str) -> str:
    try:
        return find_program(program, package)
    except MissingService as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(error))


def run(command: Sequence[str | Path]) -> None:
    done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, timeout=170, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("file", TESTS, ids=lambda path: path.name)
def test_the_tests_of_the_javascript_client_pass(file: Path) -> None:
    run([find("node", "nodejs"), "--test", file])


def test_the_types_in_the_comments_of_the_javascript_client_are_right() -> None:
    compiler = HERE / "node_modules" / ".bin" / "tsc"
    if not compiler.exists():
        run([find("npm", "npm"), "ci", "--ignore-scripts", "--no-audit", "--no-fund"])

    run([compiler, "-p", HERE])
