"""The other side: each job is a process of Node.js that begins when ours do."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from bench.latency import Pace
from bench.peers.busmq.package import VERSION, node_command
from bench.processes import Gate, Job
from bench.queues import MESSAGE
from bench.sides import MESSAGE_BYTES, Cycle, Load, Traffic
from bench.timing import Span

TRAFFIC_WINDOW: Final = 1
"""Pushes of a queue that are on their way at once. More of them starve its own consumers, because busmq sends
pushes and pops over one connection and pops one message at a time: two halve what is consumed."""
SINGLE_WINDOW: Final = 1000
LINE_BYTES: Final = 16 * 1024 * 1024
"""An outcome is one line, and may hold the age of every message."""

T = TypeVar("T")


class BusmqSide:
    name = f"busmq {VERSION}"

    def traffic(self, url: str, traffic: Traffic) -> Job[list[Cycle]]:
        spec = {
            "queues": traffic.queues,
            "cycles": traffic.cycles,
            "seconds": traffic.cycle_seconds,
            "reliable": traffic.reliable,
            "window": TRAFFIC_WINDOW,
        }
        return NodeJob(url, "traffic", spec, _cycles)

    def push(self, url: str, load: Load) -> Job[Span]:
        spec = {"queue": load.queue, "messages": load.messages, "window": SINGLE_WINDOW}
        return NodeJob(url, "push", spec, _span)

    def consume(self, url: str, load: Load) -> Job[Span]:
        return NodeJob(url, "consume", {"queue": load.queue, "messages": load.messages}, _span)

    def send(self, url: str, queue: str, pace: Pace) -> Job[None]:
        return NodeJob(url, "send", _stamps(queue, pace), _nothing)

    def receive(self, url: str, queue: str, pace: Pace) -> Job[list[float]]:
        return NodeJob(url, "receive", _stamps(queue, pace), list[float])


@dataclass(frozen=True, slots=True)
class NodeJob(Generic[T]):
    """Runs a task of peer.js; `read` makes an outcome of ours from what it prints."""

    url: str
    task: str
    spec: dict[str, Any]
    read: Callable[[Any], T]

    async def run(self, gate: Gate) -> T:
        spec = {"url": self.url, "task": self.task, "message": MESSAGE, **self.spec}
        # When this process is killed, the end of its input ends the other one too.
        process = await asyncio.create_subprocess_exec(
            *node_command("peer.js"),
            json.dumps(spec),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=LINE_BYTES,
        )
        try:
            await _answer(process, "ready")
            await gate.passed()
            assert process.stdin is not None
            process.stdin.write(b"begin\n")
            return self.read(await _answer(process, "outcome"))
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


class NodeFailed(Exception):
    """A process of Node.js ended before it had an outcome."""


async def _answer(process: asyncio.subprocess.Process, key: str) -> Any:
    assert process.stdout is not None
    assert process.stderr is not None
    line = await process.stdout.readline()
    if not line:
        raise NodeFailed((await process.stderr.read()).decode(errors="replace"))
    return json.loads(line)[key]


def _stamps(queue: str, pace: Pace) -> dict[str, Any]:
    return {"queue": queue, "messages": pace.count, "pause": pace.pause_seconds, "size": MESSAGE_BYTES}


def _cycles(outcome: Any) -> list[Cycle]:
    return [Cycle(**cycle) for cycle in outcome]


def _span(outcome: Any) -> Span:
    return Span(outcome["messages"], 0, round(outcome["seconds"] * 1e9))


def _nothing(_: Any) -> None:
    return None
