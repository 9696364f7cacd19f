"""Consuming for blocking code: messages change threads in portions, and each is the user's only when it is handed over.

The loop fetches, and the thread of the user hands over. What is left of a portion when the user leaves was never handed
over, so it goes back to the queue like everything else that was only fetched.
"""

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from typing import Any

from onebus.message import Message
from onebus.objects.consumer import Consumer
from onebus.objects.holding import Holding

Portion = Sequence[tuple[Holding | None, Iterable[Message]]]
"""Messages that were fetched together, by what holds them, if anything does."""


class PortionConsumer(Consumer):
    """One run of consuming in two threads: `next` is for the loop, `hand_over` for the thread of the user."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._handing = threading.Lock()
        self._stepping = asyncio.Lock()
        self._portions = self._fetched() if self.options.remove else self._left_there()

    async def next(self) -> Portion | None:
        """Return more messages when there are any; None when there will be none."""
        async with self._stepping:
            return await anext(self._portions, None)

    def hand_over(self, holding: Holding | None, message: Message) -> bool:
        """Note that a message goes to the user now; return False if it is too late, because it has been given back."""
        with self._handing:
            if self._stopping:
                return False
            if holding is not None:
                holding.handed = message.id
            self.handed += 1
            return True

    async def close(self) -> None:
        """Give back what was not handed over."""
        # A step that was interrupted may still be on its way out.
        async with self._stepping:
            await self._portions.aclose()

    async def stop(self) -> None:
        self._hand_over_no_more()
        await super().stop()

    async def _give_back(self) -> None:
        self._hand_over_no_more()
        await super()._give_back()

    def _hand_over_no_more(self) -> None:
        # Whoever hands over meanwhile has either done so, or will see that it is too late.
        with self._handing:
            self._stopping = True

    @property
    def _has_enough(self) -> bool:
        return self._stopping or self.handed == self.options.limit

    async def _fetched(self) -> AsyncGenerator[Portion]:
        async with self._running():
            if not self._stopping:
                self._beating = asyncio.create_task(self._keep_leases(), name=f"onebus-leases {self.log}")
            while not self._has_enough:
                claim, holdings = await self._fetch()
                if self._stopping:
                    return
                received = await self._received(claim, holdings)
                began = time.perf_counter()
                yield received
                self._adapt((time.perf_counter() - began) / max(claim.count, 1))
                if not self.options.needs_ack:
                    for holding in holdings:
                        self._done += holding.take_handed()
                self._forget_finished()

    async def _left_there(self) -> AsyncGenerator[Portion]:
        most = self.options.limit
        async with aclosing(self._read()) as portions:
            async for messages in portions:
                yield [(None, messages if most is None else messages[: most - self.handed])]
                if self._has_enough:
                    return
