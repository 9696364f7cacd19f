"""What was measured: as lines of JSON for programs, and as tables for people."""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Self

from rich.console import Console
from rich.table import Table

from bench.targets import Target

RATE = "messages/s"
MILLISECONDS = "ms"
MEGABYTES = "MB"


@dataclass(frozen=True, slots=True)
class Measurement:
    """One figure of ours, and, where there is one, the peer it stands beside."""

    store: str
    size: int
    what: str
    value: float
    unit: str
    peer: str | None = None
    peer_value: float | None = None
    ratio: float | None = None
    """Our value divided by the peer's."""
    target: str | None = None
    met: bool | None = None


def measurement(
    store: str, size: int, what: str, value: float, unit: str, *, target: Target | None = None
) -> Measurement:
    """Return a figure, held against a target for itself."""
    met = None if target is None else target.is_met_by(value)
    return Measurement(store, size, what, value, unit, target=_text(target), met=met)


def comparison(own: Measurement, peer: str, peer_value: float, *, target: Target | None = None) -> Measurement:
    """Return a figure held against a peer's, and the ratio against a target."""
    ratio = own.value / peer_value if peer_value else math.inf
    met = None if target is None else target.is_met_by(ratio)
    return Measurement(
        own.store, own.size, own.what, own.value, own.unit, peer, peer_value, ratio, target=_text(target), met=met
    )


@dataclass(frozen=True, slots=True)
class CycleRates:
    """What one side did per second in one report cycle, in all its processes."""

    what: str
    side: str
    cycle: int
    pushed: float
    consumed: float


class Report:
    """Collects measurements; each is in the file as soon as it is made."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.measurements: list[Measurement] = []
        self.cycles: list[CycleRates] = []
        self._stream: IO[str] | None = None

    def __enter__(self) -> Self:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self._stream = self.file.open("w")
        return self

    def __exit__(self, *_: object) -> None:
        if self._stream is not None:
            self._stream.close()

    def add(self, one: Measurement) -> Measurement:
        self.measurements.append(one)
        self._write(one)
        return one

    def add_cycle(self, one: CycleRates) -> None:
        self.cycles.append(one)
        self._write(one)

    def _write(self, one: Measurement | CycleRates) -> None:
        assert self._stream is not None
        self._stream.write(json.dumps(asdict(one), ensure_ascii=False) + "\n")
        self._stream.flush()

    @property
    def missed(self) -> list[Measurement]:
        return [one for one in self.measurements if one.met is False]

    @property
    def met_count(self) -> int:
        return sum(one.met is True for one in self.measurements)


def show_table(console: Console, title: str, measurements: Iterable[Measurement]) -> None:
    table = Table(title=title, title_justify="left")
    table.add_column("bytes", justify="right")
    table.add_column("what", overflow="fold")
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("ratio", justify="right", no_wrap=True)
    table.add_column("target", no_wrap=True)
    table.add_column("met")
    for one in measurements:
        table.add_row(*_row(one))
    console.print(table)


def show_cycles(console: Console, cycles: Sequence[CycleRates]) -> None:
    """Show for each kind of traffic how the rates went from cycle to cycle."""
    for what in dict.fromkeys(one.what for one in cycles):
        table = Table(title=f"{what}, cycle by cycle", title_justify="left")
        table.add_column("side", no_wrap=True)
        table.add_column("cycle", justify="right")
        table.add_column("pushed", justify="right", no_wrap=True)
        table.add_column("consumed", justify="right", no_wrap=True)
        for one in cycles:
            if one.what == what:
                table.add_row(one.side, str(one.cycle), _number(one.pushed, RATE), _number(one.consumed, RATE))
        console.print(table)


def _row(one: Measurement) -> tuple[str, ...]:
    if one.peer is None or one.peer_value is None or one.ratio is None:
        what, value, ratio = one.what, one.value, ""
    else:
        what, value, ratio = f"  ÷ {one.peer}", one.peer_value, f"{one.ratio:.2f} x"
    met = {True: "[green]yes[/]", False: "[bold red]no[/]", None: ""}[one.met]
    return str(one.size), what, _number(value, one.unit), ratio, one.target or "", met


def summary_of(one: Measurement) -> str:
    """A missed target in one line."""
    figure = f"{one.ratio:.2f} x {one.peer}" if one.ratio is not None else _number(one.value, one.unit)
    return f"{one.store}, {one.size} bytes, {one.what}: {figure}, target {one.target}"


def _number(value: float, unit: str) -> str:
    digits = 0 if value >= 100 else 2 if unit == MILLISECONDS else 1
    return f"{value:,.{digits}f} {unit}".replace(",", " ")


def _text(target: Target | None) -> str | None:
    return None if target is None else str(target)
