"""The tests of the JavaScript client that need no browser, in Node.js."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.services.process import MissingService, find_program

TESTS = sorted(Path(__file__).parent.glob("*.test.js"))


@pytest.fixture(scope="module")
def node() -> str:
    try:
        return find_program("node", "nodejs")
    except MissingService as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(error))


@pytest.mark.parametrize("file", TESTS, ids=lambda path: path.name)
def test_the_tests_of_the_javascript_client_pass(node: str, file: Path) -> None:
    done = subprocess.run([node, "--test", file], capture_output=True, text=True, timeout=120, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
