"""Says what is being measured: a line that changes on a terminal, plain lines elsewhere."""

import time
from types import TracebackType
from typing import Self

from rich.console import Console


class Progress:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._status = console.status("starting") if console.is_terminal else None
        self._begin = time.monotonic()

    def step(self, text: str) -> None:
        if self._status is not None:
            self._status.update(f"{self.seconds:4.0f} s  {text}")
        else:
            self._console.print(f"{self.seconds:4.0f} s  {text}", soft_wrap=True)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._begin

    def __enter__(self) -> Self:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status is not None:
            self._status.stop()
