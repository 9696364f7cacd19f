"""When a job began and ended, and what its process weighed meanwhile."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_PAGE_BYTES = 4096
_SAMPLES = 10
"""How often memory is looked at in the course of a job. The first look ends the warm-up."""


@dataclass(frozen=True, slots=True)
class Span:
    """One job: from its first to its last message."""

    messages: int
    started_ns: int
    finished_ns: int
    batches: int = 0
    growth_bytes: int = 0
    """How much the process grew after the first tenth of the messages, at most."""

    @property
    def rate(self) -> float:
        return self.messages / (self.finished_ns - self.started_ns) * 1e9


def rate_of_both(producer: Span, consumer: Span) -> float:
    """Messages per second from the first append until the last message is settled."""
    return consumer.messages / (consumer.finished_ns - producer.started_ns) * 1e9


class Stopwatch:
    """Counts messages and makes a span of them."""

    def __init__(self, expected: int) -> None:
        self._step = max(expected // _SAMPLES, 1)
        self._next = self._step
        self._weights: list[int] = []
        self.messages = 0
        self.batches = 0
        self._started_ns = time.monotonic_ns()

    def count(self, messages: int) -> None:
        self.messages += messages
        self.batches += 1
        if self.messages >= self._next:
            self._next += self._step
            self._weights.append(resident_bytes())

    def stop(self) -> Span:
        finished_ns = time.monotonic_ns()
        return Span(self.messages, self._started_ns, finished_ns, self.batches, _growth(self._weights))


def _growth(weights: Sequence[int]) -> int:
    return max(weights) - weights[0] if weights else 0


def resident_bytes(pid: int | str = "self") -> int:
    """Return what a process weighs."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
