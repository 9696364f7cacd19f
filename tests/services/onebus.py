"""`onebus serve`, as its users run it."""

import sys
from collections.abc import Sequence
from urllib.error import URLError
from urllib.request import urlopen

from tests.services.process import Server


class OnebusServer(Server):
    """Serves a store. `options` are further arguments of the command."""

    def __init__(self, store: str, *options: str) -> None:
        super().__init__()
        self._store = store
        self._options = options

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def command(self) -> Sequence[str]:
        serve = [sys.executable, "-m", "onebus.cli", "serve"]
        return [*serve, "--store", self._store, "--port", str(self.port), *self._options]

    def is_ready(self) -> bool:
        try:
            with urlopen(f"{self.address}/healthz", timeout=5) as response:
                return bool(response.status == 200)
        except (URLError, OSError):
            return False
