"""Child processes that run jobs which begin at the same moment.

A job is a small object that is pickled over to its process; what its `run` returns comes back the same way.
Processes last for many jobs, because importing everything anew would take longer than most of them.
"""

import asyncio
import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

import uvloop

from onebus.stores import create_store

# Workers are forked from a clean process that has imported everything, not from this one with its servers.
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(
    ["bench.log", "bench.busmq", "bench.topics.relay", "onebus.stores.sql.store", "onebus.stores.redis.store"]
)

PATIENCE_SECONDS = 900.0
"""A job that takes longer waits for something that will never come."""

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")
Produced = TypeVar("Produced")
Consumed = TypeVar("Consumed")


class Gate(Protocol):
    async def passed(self) -> None:
        """Return when every job is ready to begin."""


class Job(Protocol[T_co]):
    async def run(self, gate: Gate) -> T_co:
        """Prepare, pass the gate exactly once, and do what is measured."""


class JobFailed(Exception):
    """A job raised an error, its process ended, or it never came to an end."""


@dataclass(frozen=True, slots=True)
class _Ready:
    pass


@dataclass(frozen=True, slots=True)
class _Go:
    pass


@dataclass(frozen=True, slots=True)
class _Returned:
    outcome: Any


@dataclass(frozen=True, slots=True)
class _Raised:
    text: str


class Worker:
    """A process that runs one job after the other."""

    def __init__(self, name: str) -> None:
        self.pipe, theirs = _context.Pipe()
        self._process = _context.Process(target=_serve, args=(theirs,), name=f"bench {name}", daemon=True)
        self._process.start()
        theirs.close()

    def send(self, message: Any) -> None:
        self.pipe.send(message)

    def receive(self) -> Any:
        try:
            message = self.pipe.recv()
        except EOFError:
            raise JobFailed(f"{self._process.name} ended unexpectedly") from None
        if isinstance(message, _Raised):
            raise JobFailed(f"{self._process.name} failed:\n{message.text}")
        return message

    def close(self) -> None:
        """End the process, whatever it is doing."""
        self._process.kill()
        self._process.join()
        self.pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Crew(Protocol):
    """Who produces and who consumes."""

    def alone(self, job: Job[T]) -> T:
        """Run a job while nothing else runs."""

    def in_turn(self, url: str, jobs: Sequence[Job[Any]]) -> list[Any]:
        """Run a producer and then its consumers, on what the producer left in the store at `url`."""

    def at_once(self, url: str, producer: Job[Produced], consumer: Job[Consumed]) -> tuple[Produced, Consumed]:
        """Run both at the same time."""

    def close(self) -> None: ...


class TwoProcesses:
    """One producing and one consuming process."""

    def __init__(self) -> None:
        self._producer = Worker("producer")
        self._consumer = Worker("consumer")

    def alone(self, job: Job[T]) -> T:
        return _run([self._producer], [job])[0]  # type: ignore[no-any-return]

    def in_turn(self, url: str, jobs: Sequence[Job[Any]]) -> list[Any]:
        producer, *consumers = jobs
        return [self.alone(producer), *(_run([self._consumer], [job])[0] for job in consumers)]

    def at_once(self, url: str, producer: Job[Produced], consumer: Job[Consumed]) -> tuple[Produced, Consumed]:
        produced, consumed = _run([self._producer, self._consumer], [producer, consumer])
        return produced, consumed

    def close(self) -> None:
        self._producer.close()
        self._consumer.close()


class OneProcess:
    """Both in one process and one event loop: the only way to share a store in memory."""

    def __init__(self) -> None:
        self._worker = Worker("process")

    def alone(self, job: Job[T]) -> T:
        return _run([self._worker], [job])[0]  # type: ignore[no-any-return]

    def in_turn(self, url: str, jobs: Sequence[Job[Any]]) -> list[Any]:
        return self.alone(_InTurn(url, tuple(jobs)))

    def at_once(self, url: str, producer: Job[Produced], consumer: Job[Consumed]) -> tuple[Produced, Consumed]:
        produced, consumed = self.alone(_AtOnce(url, (producer, consumer)))
        return produced, consumed

    def close(self) -> None:
        self._worker.close()


@dataclass(frozen=True, slots=True)
class _InTurn:
    url: str
    jobs: tuple[Job[Any], ...]

    async def run(self, gate: Gate) -> list[Any]:
        # A store in memory is forgotten when nobody has it open.
        async with create_store(self.url):
            await gate.passed()
            return [await job.run(_OpenGate()) for job in self.jobs]


@dataclass(frozen=True, slots=True)
class _AtOnce:
    url: str
    jobs: tuple[Job[Any], ...]

    async def run(self, gate: Gate) -> list[Any]:
        async with create_store(self.url):
            await gate.passed()
            barrier = _BarrierGate(len(self.jobs))
            return await asyncio.gather(*(job.run(barrier) for job in self.jobs))


class _OpenGate:
    async def passed(self) -> None:
        return


class _BarrierGate:
    def __init__(self, parties: int) -> None:
        self._barrier = asyncio.Barrier(parties)

    async def passed(self) -> None:
        await self._barrier.wait()


class _PipeGate:
    def __init__(self, pipe: "Connection[Any, Any]") -> None:
        self._pipe = pipe

    async def passed(self) -> None:
        # This stops the event loop, and nothing is to happen in it before all begin.
        self._pipe.send(_Ready())
        self._pipe.recv()


def _run(workers: Sequence[Worker], jobs: Sequence[Job[Any]]) -> list[Any]:
    for worker, job in zip(workers, jobs, strict=True):
        worker.send(job)
    _collect(workers)
    for worker in workers:
        worker.send(_Go())
    return [message.outcome for message in _collect(workers)]


def _collect(workers: Sequence[Worker]) -> list[Any]:
    """Return one message of each; raise as soon as any of them fails, or all keep silent."""
    messages: dict[Worker, Any] = {}
    while len(messages) < len(workers):
        by_pipe: dict[Any, Worker] = {worker.pipe: worker for worker in workers if worker not in messages}
        ready = wait(list(by_pipe), timeout=PATIENCE_SECONDS)
        if not ready:
            raise JobFailed(f"Nothing was heard of {len(by_pipe)} jobs for {PATIENCE_SECONDS:.0f} s")
        for pipe in ready:
            messages[by_pipe[pipe]] = by_pipe[pipe].receive()
    return [messages[worker] for worker in workers]


def _serve(pipe: "Connection[Any, Any]") -> None:
    # Ctrl-C in the terminal is for the parent, which then ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    while True:
        try:
            job = pipe.recv()
        except EOFError:
            return
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                message: _Returned | _Raised = _Returned(runner.run(job.run(_PipeGate(pipe))))
        except Exception:
            message = _Raised(traceback.format_exc())
        pipe.send(message)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
