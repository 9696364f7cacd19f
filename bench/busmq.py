"""The suite for queues: onebus and the npm package busmq on the same Redis, in turn.

Whatever else the machine does, it does to both: what is measured of ours stands between parts of the peer's, and
short measurements alternate.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import fmean, median

from bench import targets
from bench.latency import Pace, percentiles
from bench.log import crew_of
from bench.peers.busmq.package import install
from bench.peers.busmq.side import BusmqSide
from bench.places import RedisPlace, opened
from bench.progress import Progress
from bench.queues import OnebusSide
from bench.report import MILLISECONDS, RATE, CycleRates, Measurement, Report, comparison, measurement
from bench.sides import MESSAGE_BYTES, Cycle, Load, Side, Traffic
from bench.timing import Span

CYCLES = 10
QUICK_CYCLES = 3
CYCLE_SECONDS = 2.0
PROCESSES = 2
QUEUES = 100
MANY_QUEUES = 1000
MESSAGES_PER_SECOND = 100
WARM_UP_CYCLES = 1
WARM_UP_SECONDS = 1
"""When latencies are measured. Warm-ups are not counted."""

OURS = OnebusSide()
THEIRS = BusmqSide()
SIDES: tuple[Side, ...] = (THEIRS, OURS)
"""In the order of their turns."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured: everything grows and shrinks with the cycles."""

    cycles: int = CYCLES
    cycle_seconds: float = CYCLE_SECONDS

    @property
    def half_cycles(self) -> int:
        return (self.cycles + 1) // 2

    @property
    def rounds(self) -> int:
        """How often short measurements alternate."""
        return 3 if self.cycles >= 6 else 1

    def messages(self, side: Side) -> int:
        """So many that both sides are busy for about as long as each other."""
        return int(self.cycles * self.cycle_seconds * (30_000 if side is OURS else 3000))

    @property
    def pace(self) -> Pace:
        counted_seconds = self.cycles * self.cycle_seconds / self.rounds
        messages = int((WARM_UP_SECONDS + counted_seconds) * MESSAGES_PER_SECOND)
        return Pace(f"{MESSAGES_PER_SECOND} messages/s", messages, 1 / MESSAGES_PER_SECOND)


@dataclass(frozen=True, slots=True)
class Rates:
    """Of all processes together, per second, in one cycle or in the mean of several."""

    pushed: float
    consumed: float


_VERBS: dict[str, Callable[[Rates], float]] = {
    "pushed": lambda rates: rates.pushed,
    "consumed": lambda rates: rates.consumed,
}


@dataclass(frozen=True, slots=True)
class BusmqSuite:
    """Runs one scenario after the other, each with processes of its own."""

    plan: Plan
    report: Report
    progress: Progress

    @contextmanager
    def opened(self) -> Iterator[dict[str, Callable[[], None]]]:
        """Start the server; yield what measures each scenario.

        Raises:
            MissingService: Redis, Node.js or npm is not installed.
            ServiceFailed: the server does not start, or the package cannot be installed.
        """
        self.progress.step("starting")
        install()
        with opened(RedisPlace) as place:
            assert isinstance(place, RedisPlace)
            run = _Run(self, place)
            yield {
                "traffic": run.traffic,
                "many queues": run.many_queues,
                "a single queue": run.single_queue,
                "reliable traffic": run.reliable_traffic,
                "latency": run.latency,
            }


class _Run:
    """One pass over the scenarios, on one server."""

    def __init__(self, suite: BusmqSuite, place: RedisPlace) -> None:
        self._plan = suite.plan
        self._report = suite.report
        self._progress = suite.progress
        self._place = place

    def traffic(self) -> None:
        what = _traffic_name(QUEUES)
        runs, theirs = self._side_by_side(what, self._plan.rounds, reliable=False)
        ours = [cycle for run in runs for cycle in run]
        for verb, rate in _VERBS.items():
            own = self._add(f"{what}: {verb}", _mean(ours, rate), RATE)
            self._report.add(comparison(own, THEIRS.name, _mean(theirs, rate), target=targets.BUSMQ_TRAFFIC))
        last = self._add(f"{what}: the last cycle", _mean((run[-1] for run in runs), _both), RATE)
        first = _mean((run[0] for run in runs), _both)
        self._report.add(comparison(last, "the first cycle", first, target=targets.LAST_CYCLE))

    def reliable_traffic(self) -> None:
        what = f"{_traffic_name(QUEUES)}, reliable"
        (ours,), theirs = self._side_by_side(what, 1, reliable=True)
        for verb, rate in _VERBS.items():
            target = targets.BUSMQ_RELIABLE if verb == "consumed" else None
            own = self._add(f"{what}: {verb}", _mean(ours, rate), RATE)
            self._report.add(comparison(own, THEIRS.name, _mean(theirs, rate), target=target))

    def many_queues(self) -> None:
        what = _traffic_name(MANY_QUEUES)
        few, many = (self._traffic_of(OURS, queues, self._plan.half_cycles) for queues in (QUEUES, MANY_QUEUES))
        self._add_cycles(what, f"{OURS.name}, {QUEUES} queues", few)
        self._add_cycles(what, OURS.name, many)
        own = self._add(f"{what}: pushed and consumed", _mean(many, _both), RATE)
        peer = f"the same with {QUEUES} queues"
        self._report.add(comparison(own, peer, _mean(few, _both), target=targets.MANY_QUEUES))

    def single_queue(self) -> None:
        spans: dict[str, list[list[Span]]] = {side.name: [] for side in SIDES}
        for _ in range(self._plan.rounds):
            for side in SIDES:
                spans[side.name].append(self._single_of(side))
        for index, what in enumerate(("push only", "consume only")):
            ours, theirs = (median(pair[index].rate for pair in spans[side.name]) for side in (OURS, THEIRS))
            own = self._add(f"1 process x 1 queue, {what}", ours, RATE)
            self._report.add(comparison(own, THEIRS.name, theirs, target=targets.BUSMQ_SINGLE))

    def latency(self) -> None:
        ages: dict[str, list[float]] = {side.name: [] for side in SIDES}
        for _ in range(self._plan.rounds):
            for side in SIDES:
                ages[side.name] += self._ages_of(side)
        ours, theirs = percentiles(ages[OURS.name]), percentiles(ages[THEIRS.name])
        for what, own_ms, peer_ms in (("p50", ours.p50_ms, theirs.p50_ms), ("p99", ours.p99_ms, theirs.p99_ms)):
            own = self._add(f"latency {what}, {self._plan.pace.name}", own_ms, MILLISECONDS)
            self._report.add(comparison(own, THEIRS.name, peer_ms, target=targets.BUSMQ_LATENCY))

    def _side_by_side(self, what: str, runs: int, *, reliable: bool) -> tuple[list[list[Rates]], list[Rates]]:
        """Return the cycles of each run of ours, and those of theirs, which stand around and between our runs."""
        part = -(-self._plan.cycles // (runs + 1))
        ours: list[list[Rates]] = []
        theirs = self._traffic_of(THEIRS, QUEUES, part, reliable=reliable)
        for _ in range(runs):
            ours.append(self._traffic_of(OURS, QUEUES, self._plan.cycles, reliable=reliable))
            theirs += self._traffic_of(THEIRS, QUEUES, part, reliable=reliable)
        self._add_cycles(what, THEIRS.name, theirs)
        for number, cycles in enumerate(ours, start=1):
            self._add_cycles(what, OURS.name if runs == 1 else f"{OURS.name}, run {number}", cycles)
        return ours, theirs

    def _traffic_of(self, side: Side, queues: int, cycles: int, *, reliable: bool = False) -> list[Rates]:
        self._step(side, f"{_traffic_name(queues)}{', reliable' if reliable else ''}")
        jobs = (
            side.traffic(
                self._place.url,
                Traffic(
                    queues=tuple(f"traffic-{process}-{number}" for number in range(queues)),
                    cycles=WARM_UP_CYCLES + cycles,
                    cycle_seconds=self._plan.cycle_seconds,
                    reliable=reliable,
                ),
            )
            for process in range(PROCESSES)
        )
        with crew_of(self._place) as crew:
            outcomes = crew.at_once(self._place.url, *jobs)
        return [_rates(cycle) for cycle in zip(*outcomes, strict=True)][WARM_UP_CYCLES:]

    def _single_of(self, side: Side) -> list[Span]:
        self._step(side, "1 process x 1 queue")
        load = Load("single", self._plan.messages(side))
        with crew_of(self._place) as crew:
            jobs = [side.push(self._place.url, load), side.consume(self._place.url, load)]
            spans: list[Span] = crew.in_turn(self._place.url, jobs)
        return spans

    def _ages_of(self, side: Side) -> list[float]:
        pace = self._plan.pace
        self._step(side, f"latency of {pace.name}")
        sender = side.send(self._place.url, "latency", pace)
        receiver = side.receive(self._place.url, "latency", pace)
        with crew_of(self._place) as crew:
            _, ages = crew.at_once(self._place.url, sender, receiver)
        return ages[WARM_UP_SECONDS * MESSAGES_PER_SECOND :]

    def _step(self, side: Side, text: str) -> None:
        self._progress.step(f"{side.name}: {text}")
        # What the last measurement left must not weigh on this one.
        with self._place.server.client() as client:
            client.flushall()

    def _add_cycles(self, what: str, side: str, cycles: Sequence[Rates]) -> None:
        for number, rates in enumerate(cycles, start=1):
            self._report.add_cycle(CycleRates(what, side, number, rates.pushed, rates.consumed))

    def _add(self, what: str, value: float, unit: str) -> Measurement:
        return self._report.add(measurement("redis", MESSAGE_BYTES, what, value, unit))


def _traffic_name(queues: int) -> str:
    return f"{PROCESSES} processes x {queues:,} queues".replace(",", " ")


def _rates(cycle: Sequence[Cycle]) -> Rates:
    """Add up what the processes did in one cycle."""
    return Rates(sum(one.pushed / one.seconds for one in cycle), sum(one.consumed / one.seconds for one in cycle))


def _both(rates: Rates) -> float:
    return rates.pushed + rates.consumed


def _mean(cycles: Iterable[Rates], rate: Callable[[Rates], float]) -> float:
    return fmean(map(rate, cycles))
