from pathlib import Path

import pytest


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A new SQLite file, which is also what commands use that are not told another store."""
    url = f"sqlite:///{tmp_path}/bus.db"
    monkeypatch.setenv("ONEBUS_STORE", url)
    return url
