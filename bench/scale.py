"""How much is measured: everything grows and shrinks with one number."""

from dataclasses import dataclass

from bench.latency import Pace
from bench.producers import CALL_MESSAGES

FULL = 1_000_000
QUICK = 50_000

_HEAVY_BYTES = 400


@dataclass(frozen=True, slots=True)
class Scale:
    """`messages` are sent through a store in one measurement of ours; `FULL` are meant to be."""

    messages: int = FULL

    def of(self, full: int, *, at_least: int = 10 * CALL_MESSAGES) -> int:
        """Return what a measurement that sends `full` messages in a full run sends in this one."""
        scaled = self._scaled(full, at_least)
        return scaled - scaled % CALL_MESSAGES

    def own(self, size: int) -> int:
        """Messages of a measurement of ours; fewer when they are large."""
        return self.of(FULL if size < _HEAVY_BYTES else FULL // 10)

    def peer(self, full: int, size: int, *, at_least: int = 5 * CALL_MESSAGES) -> int:
        """Messages of a measurement of a peer that sends `full` small ones in a full run."""
        return self.of(full if size < _HEAVY_BYTES else full // 4, at_least=at_least)

    @property
    def is_thorough(self) -> bool:
        """Whether there is time to measure ourselves between any two peers."""
        return self.messages > QUICK

    @property
    def streamed(self) -> int:
        """Messages that pass through a store while memory is watched, or that fill a long log."""
        return self.of(10 * FULL)

    @property
    def quiet(self) -> Pace:
        return Pace("a quiet message", self._scaled(150, at_least=30), pause_seconds=0.02)

    @property
    def steady(self) -> Pace:
        return Pace("1000 messages/s", self._scaled(3000, at_least=500), pause_seconds=0.001)

    @property
    def rounds(self) -> int:
        """How often a long and a short log take turns."""
        return self._scaled(40, at_least=3)

    def _scaled(self, full: int, at_least: int) -> int:
        return max(full * self.messages // FULL, at_least)
