"""The notebook in a file runs from its first cell to its last, and finds what it has published."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from onebus.errors import SparkUnusable
from onebus.spark import check_spark
from tests.conftest import needing

EXAMPLE = Path(__file__).parents[2] / "examples" / "pipeline.py"


@pytest.mark.timeout(400)
def test_a_notebook_goes_from_the_first_message_to_the_report() -> None:
    with needing(SparkUnusable):
        check_spark()

    done = subprocess.run([sys.executable, EXAMPLE, "4000"], capture_output=True, text=True, timeout=390, check=False)

    assert done.returncode == 0, done.stderr
    shown = done.stdout
    folder = re.search(r"The report is in (\S+)/audit.html", shown)
    assert folder is not None
    try:
        assert "4,001 messages published" in shown
        assert "|/books/1|" in shown
        assert "4,001 messages are in the lake." in shown
        windows = re.findall(r"\|(\d\d:\d\d:\d\d)\|(\w+)\| +(\d+)\|", shown)
        assert sum(int(messages) for _, _, messages in windows) == 4000
        assert re.search(r"\d+ orders are large", shown)
        assert re.search(r"[\d,]+ clicks are remembered", shown)
        assert "0 missing, 0 duplicated." in shown
        assert Path(folder[1], "audit.html").exists()
    finally:
        shutil.rmtree(folder[1])
