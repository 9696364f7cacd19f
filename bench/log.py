"""The suite for the log: each store beside the raw ceiling of its server and the ordinary ways to use it."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median

from bench import targets
from bench.consumers import Consume, Read
from bench.latency import FollowStamps, Latency, Pace, SendStamps, latency_of
from bench.length import SHORT_MESSAGES, CompareLengths
from bench.peers import mariadb, postgres, redis, sqlite
from bench.peers.peer import Peer, RoundTrip, Setting
from bench.places import PLACES, MariaDbPlace, Place, PostgresPlace, RedisPlace, SqlitePlace, opened
from bench.processes import Crew, Job
from bench.producers import Append, Drop
from bench.progress import Progress
from bench.report import MEGABYTES, MILLISECONDS, RATE, Measurement, Report, comparison, measurement
from bench.scale import Scale
from bench.targets import Target
from bench.timing import Span, rate_of_both

GROWTH_STORES = ("memory", "sqlite", "redis")
LENGTH_STORES = ("memory", "sqlite", "redis", "postgres")
SPECIAL_BYTES = 100
OWN_RUNS = 3
"""How often we are measured at least, in a thorough run; the median counts."""


@dataclass(frozen=True, slots=True)
class LogSuite:
    """Runs everything for one store after the other, one measurement at a time."""

    scale: Scale
    sizes: Sequence[int]
    report: Report
    progress: Progress

    def run(self, store: str) -> None:
        self.progress.step(f"{store}: starting")
        with opened(PLACES[store]) as place:
            with crew_of(place) as crew:
                for size in self.sizes:
                    _SizeRun(self, place, Setting(crew, size, self.scale)).run()
                if store in LENGTH_STORES:
                    self._compare_lengths(place, crew)
            if store in GROWTH_STORES:
                self._watch_growth(place)

    def _compare_lengths(self, place: Place, crew: Crew) -> None:
        self.progress.step(f"{place.name}: a log of {self.scale.streamed:,} messages against {SHORT_MESSAGES:,}")
        long_url = place.separate_url()
        rates = crew.alone(
            CompareLengths(
                long_url=long_url,
                filling_url=place.filling_url(long_url),
                short_url=place.separate_url(),
                stored=self.scale.streamed,
                size=SPECIAL_BYTES,
                rounds=self.scale.rounds,
            )
        )
        what = f"claim and settle with {self.scale.streamed:,} stored".replace(",", " ")
        own = self.report.add(measurement(place.name, SPECIAL_BYTES, what, rates.in_long_log, RATE))
        peer = f"the same with {SHORT_MESSAGES:,} stored".replace(",", " ")
        self.report.add(comparison(own, peer, rates.in_short_log, target=targets.LONG_LOG))

    def _watch_growth(self, place: Place) -> None:
        messages = self.scale.streamed
        self.progress.step(f"{place.name}: memory while {messages:,} messages pass")
        # In processes of its own: what earlier jobs left in the heap would hide growth.
        with crew_of(place) as crew:
            url = place.separate_url()
            producer, consumer = crew.at_once(
                url, Append(url, "growth", messages, SPECIAL_BYTES), Consume(url, "growth", messages)
            )
        growth = max(producer.growth_bytes, consumer.growth_bytes) / 1e6
        what = f"memory growth over {messages:,} messages".replace(",", " ")
        self.report.add(measurement(place.name, SPECIAL_BYTES, what, growth, MEGABYTES, target=targets.GROWTH))


@contextmanager
def crew_of(place: Place) -> Iterator[Crew]:
    crew = place.crew()
    try:
        yield crew
    finally:
        crew.close()


class _SizeRun:
    """One store with messages of one size."""

    def __init__(self, suite: LogSuite, place: Place, setting: Setting) -> None:
        self._progress = suite.progress
        self._report = suite.report
        self._place = place
        self._setting = setting
        self._messages = setting.scale.own(setting.size)
        self._own_runs: list[tuple[Span, Span]] = []

    def run(self) -> None:
        self._one_after_the_other()
        self._end_to_end()
        self._latencies()

    def _one_after_the_other(self) -> None:
        self._step("append, read, claim")
        url, log, messages = self._place.url, f"turn{self._setting.size}", self._messages
        jobs: list[Job[Span]] = [
            Append(url, log, messages, self._setting.size),
            Read(url, log, messages),
            Consume(url, log, messages),
        ]
        spans: list[Span] = self._setting.crew.in_turn(url, jobs)
        self._setting.crew.alone(Drop(url, log))
        for what, span in zip(("append", "read", "claim and settle"), spans, strict=True):
            self._add(what, span.rate, RATE)

    def _end_to_end(self) -> None:
        """Measure ourselves before, between and after the peers, so that all suffer alike from other load."""
        self._run_own()
        figures: list[tuple[Peer, float]] = []
        peers = self._peers()
        for peer in peers:
            self._step(peer.name)
            figures.append((peer, peer.measure()))
            if self._setting.scale.is_thorough or peer is peers[-1]:
                self._run_own()
        while self._setting.scale.is_thorough and len(self._own_runs) < OWN_RUNS:
            self._run_own()
        rate = median(rate_of_both(*spans) for spans in self._own_runs)
        own = self._add("end to end", rate, RATE, target=self._end_to_end_target())
        for peer, peer_rate in figures:
            target = peer.target if self._setting.size == targets.TARGET_BYTES else None
            self._report.add(comparison(own, peer.name, peer_rate, target=target))

    def _run_own(self) -> None:
        self._step("end to end")
        url, log, messages = self._place.url, f"both{self._setting.size}", self._messages
        producer, consumer = Append(url, log, messages, self._setting.size), Consume(url, log, messages)
        self._own_runs.append(self._setting.crew.at_once(url, producer, consumer))
        self._setting.crew.alone(Drop(url, log))

    def _batch_messages(self) -> int:
        produced, _ = self._own_runs[0]
        return max(1, round(produced.messages / produced.batches))

    def _latencies(self) -> None:
        scale = self._setting.scale
        self._add_latency(scale.steady, self._latency(scale.steady))
        quiet = self._latency(scale.quiet)
        target = targets.SQLITE_QUIET if isinstance(self._place, SqlitePlace) else None
        own = self._add_latency(scale.quiet, quiet, target)
        peer = self._round_trip()
        if peer is not None:
            self._step(peer.name)
            raw = peer.measure()
            self._report.add(comparison(own, peer.name, raw.p50_ms, target=peer.target))

    def _latency(self, pace: Pace) -> Latency:
        self._step(f"latency of {pace.name}")
        url, log = self._place.url, f"latency{self._setting.size}{pace.name}"
        sender, reader = SendStamps(url, log, self._setting.size, pace), FollowStamps(url, log, pace)
        latency = latency_of(self._setting.crew, url, sender, reader)
        self._setting.crew.alone(Drop(url, log))
        return latency

    def _add_latency(self, pace: Pace, latency: Latency, target: Target | None = None) -> Measurement:
        own = self._add(f"latency p50, {pace.name}", latency.p50_ms, MILLISECONDS, target=target)
        self._add(f"latency p99, {pace.name}", latency.p99_ms, MILLISECONDS)
        return own

    def _peers(self) -> list[Peer]:
        match self._place:
            case RedisPlace():
                return redis.peers(self._place, self._setting)
            case SqlitePlace():
                return sqlite.peers(self._place, self._setting, self._batch_messages)
            case PostgresPlace():
                return postgres.peers(self._place, self._setting)
            case MariaDbPlace():
                return mariadb.peers(self._place, self._setting)
        return []

    def _round_trip(self) -> RoundTrip | None:
        match self._place:
            case RedisPlace():
                return redis.round_trip(self._place, self._setting)
            case PostgresPlace():
                return postgres.round_trip(self._place, self._setting)
            case MariaDbPlace():
                return mariadb.round_trip(self._place, self._setting)
        return None

    def _end_to_end_target(self) -> Target | None:
        is_promised = self._place.name == "memory" and self._setting.size == targets.TARGET_BYTES
        return targets.MEMORY_END_TO_END if is_promised else None

    def _step(self, text: str) -> None:
        self._progress.step(f"{self._place.name}, {self._setting.size} bytes: {text}")
        # What the last measurement left to be written must not weigh on this one.
        os.sync()

    def _add(self, what: str, value: float, unit: str, *, target: Target | None = None) -> Measurement:
        return self._report.add(measurement(self._place.name, self._setting.size, what, value, unit, target=target))
