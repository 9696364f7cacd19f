"""Sends what has arrived for a client that waits for nothing else, past the task that serves it."""

from abc import ABC, abstractmethod
from collections.abc import Callable

from onebus.web.answers import Answer
from onebus.web.feeds.findings import Findings
from onebus.web.lane import Lane
from onebus.web.traffic import Traffic


class Express(ABC):
    """The short cut to one client whose poll is being held."""

    __slots__ = ("_lane",)

    def __init__(self, lane: Lane) -> None:
        self._lane = lane

    @property
    def is_free(self) -> bool:
        """Whether the client gets what is sent now at once."""
        return self._lane.is_free

    @abstractmethod
    def send(self, findings: Findings) -> None: ...


class StreamExpress(Express):
    """Adds to an answer that is being streamed."""

    __slots__ = ("_traffic", "_transport")

    def __init__(self, lane: Lane, traffic: Traffic, transport: str) -> None:
        super().__init__(lane)
        self._traffic = traffic
        self._transport = transport

    def send(self, findings: Findings) -> None:
        chunk = findings.chunk
        self._lane.write(chunk)
        self._traffic.sent(self._transport, findings.count, len(chunk))


class AnswerExpress(Express):
    """Gives the whole answer; whoever serves the client finds that it is done."""

    __slots__ = ("_answer", "_end", "is_used")

    def __init__(self, lane: Lane, answer: Callable[[Findings], Answer], end: Callable[[], None]) -> None:
        super().__init__(lane)
        self._answer = answer
        self._end = end
        self.is_used = False

    @property
    def is_free(self) -> bool:
        return not self.is_used and self._lane.is_free

    def send(self, findings: Findings) -> None:
        self.is_used = True
        self._end()
        self._answer(findings).give(self._lane)
