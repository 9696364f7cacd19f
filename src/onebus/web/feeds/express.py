"""Sends what has arrived for a client that waits for nothing else, past the task that serves it."""

from onebus.web.feeds.findings import Findings
from onebus.web.lane import Lane
from onebus.web.traffic import Traffic


class Express:
    """The short cut to one client whose poll is being streamed."""

    __slots__ = ("_lane", "_traffic", "_transport")

    def __init__(self, lane: Lane, traffic: Traffic, transport: str) -> None:
        self._lane = lane
        self._traffic = traffic
        self._transport = transport

    @property
    def is_free(self) -> bool:
        return self._lane.is_free

    def send(self, findings: Findings) -> None:
        chunk = findings.chunk
        self._lane.write(chunk)
        self._traffic.sent(self._transport, findings.count, len(chunk))
