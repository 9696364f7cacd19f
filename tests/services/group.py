"""Servers that belong together."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from tests.services.patience import comes_true
from tests.services.process import Server


class ServerGroup(ABC):
    """Starts, stops and closes several servers as one."""

    def __init__(self, servers: Sequence[Server]) -> None:
        self.servers = servers

    @abstractmethod
    def is_ready(self) -> bool:
        """Whether the servers, each of them ready, also know each other."""

    def start(self) -> None:
        for server in self.servers:
            server.start()

    def wait_ready(self, deadline: float = 30.0) -> None:
        for server in self.servers:
            server.wait_ready(deadline)
        if not comes_true(self.is_ready, deadline):
            raise self.servers[-1].failure(f"{self} is not ready after {deadline:g} s")

    def stop(self) -> None:
        for server in reversed(self.servers):
            server.stop()

    def close(self) -> None:
        for server in reversed(self.servers):
            server.close()

    def __enter__(self) -> Self:
        try:
            self.start()
            self.wait_ready()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(ports={[server.port for server in self.servers]})"
