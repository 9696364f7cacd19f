"""Receipts: publishers ask for them, and get them when what they have sent is stored."""

import asyncio
import logging
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import zmq

from onebus.errors import BusError
from onebus.zmq.burst import BurstSocket
from onebus.zmq.frames import Refusal

_log = logging.getLogger("onebus")

MAX_REMEMBERED: Final = 20_000
"""How many receipts are remembered, so that what is sent again is not stored again."""


class Receipts:
    """All receipts of a broker. Those of one moment that are for the same publisher travel together."""

    def __init__(self, router: BurstSocket) -> None:
        self._router = router
        self._known: OrderedDict[tuple[bytes, bytes], _Receipt] = OrderedDict()
        self._good: dict[bytes, list[bytes]] = defaultdict(list)

    def expect(self, peer: bytes, publisher: bytes, number: bytes) -> Callable[[BusError | None], None] | None:
        """Return what to call when something is stored, or never will be; None if it was sent before.

        Then the receipt goes to whom it was sent from now: the connection may be another one.
        """
        known = self._known.get((publisher, number))
        if known is not None:
            known.peer = peer
            if known.said is not None:
                self._send(peer, [number, known.said])
            return None
        receipt = self._known[publisher, number] = _Receipt(peer)
        if len(self._known) > MAX_REMEMBERED:
            self._known.popitem(last=False)

        def give(error: BusError | None) -> None:
            if error is None:
                receipt.said = b""
                if not self._good:
                    asyncio.get_running_loop().call_soon(self._send_good)
                self._good[receipt.peer].append(number)
            else:
                receipt.said = msgspec.json.encode(Refusal(error.code, str(error)))
                self._send(receipt.peer, [number, receipt.said])

        return give

    def _send_good(self) -> None:
        for peer, numbers in self._good.items():
            self._send(peer, [b" ".join(numbers), b""])
        self._good.clear()

    def _send(self, peer: bytes, frames: Sequence[bytes]) -> None:
        try:
            self._router.send([peer, *frames])
        except zmq.ZMQError as error:
            # Whoever still wants it asks again.
            _log.debug("a receipt was not given: %s", error)


class _Receipt:
    __slots__ = ("peer", "said")

    def __init__(self, peer: bytes) -> None:
        self.peer = peer
        self.said: bytes | None = None
        """What the publisher is told, once that is known."""
