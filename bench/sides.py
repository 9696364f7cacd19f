"""What two sides have to do in turn, to stand beside each other: each brings a job for every task."""

from dataclasses import dataclass
from typing import Protocol

from bench.latency import Pace
from bench.processes import Job
from bench.timing import Span

MESSAGE_BYTES = 32


@dataclass(frozen=True, slots=True)
class Cycle:
    """What one process did in one report cycle. A busy process wakes up late, so each cycle has its own length."""

    pushed: int
    consumed: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Traffic:
    """One process that pushes to and consumes from all its queues at once, as fast as it can."""

    queues: tuple[str, ...]
    cycles: int
    cycle_seconds: float
    reliable: bool = False
    """Whether messages are consumed reliably, and each one is acknowledged."""


@dataclass(frozen=True, slots=True)
class Load:
    """So many messages in one queue."""

    queue: str
    messages: int


class Side(Protocol):
    """One of the buses that are compared."""

    @property
    def name(self) -> str: ...

    def traffic(self, url: str, traffic: Traffic) -> Job[list[Cycle]]: ...

    def push(self, url: str, load: Load) -> Job[Span]:
        """Push all messages; the span ends when the last one is stored."""

    def consume(self, url: str, load: Load) -> Job[Span]:
        """Consume messages that are there already."""

    def send(self, url: str, queue: str, pace: Pace) -> Job[None]:
        """Push messages that say when they were pushed."""

    def receive(self, url: str, queue: str, pace: Pace) -> Job[list[float]]:
        """Return the age of each message in milliseconds, in the order of arrival."""
