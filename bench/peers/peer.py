"""What stands beside our own figures."""

from collections.abc import Callable
from dataclasses import dataclass

from bench.latency import Latency
from bench.processes import Crew
from bench.scale import Scale
from bench.targets import Target


@dataclass(frozen=True, slots=True)
class Setting:
    """The circumstances that a peer shares with our own measurement."""

    crew: Crew
    size: int
    scale: Scale


@dataclass(frozen=True, slots=True)
class Peer:
    """Another way to move messages; `measure` returns its messages per second."""

    name: str
    measure: Callable[[], float]
    target: Target | None = None
    """What our end to end rate divided by the peer's should be."""


@dataclass(frozen=True, slots=True)
class RoundTrip:
    """The way of a single message through the bare server."""

    name: str
    measure: Callable[[], Latency]
    target: Target | None = None
