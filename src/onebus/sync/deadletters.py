"""The dead letters of a queue for blocking code."""

import builtins
from collections.abc import Sequence

from onebus.objects.deadletters import DeadLetter
from onebus.objects.deadletters import DeadLetters as AsyncDeadLetters
from onebus.sync.message import Message
from onebus.sync.portal import Portal


class DeadLetters:
    """The dead letters of one queue; see `onebus.objects.deadletters.DeadLetters`."""

    def __init__(self, portal: Portal, dead_letters: AsyncDeadLetters) -> None:
        self._portal = portal
        self._dead_letters = dead_letters

    def add(self, messages: Sequence[Message], reason: str) -> None:
        """Keep messages with the reason why; see `onebus.objects.deadletters.DeadLetters.add`."""
        self._portal.call(self._dead_letters.add([message.wrapped for message in messages], reason))

    def count(self) -> int:
        """Return how many there are."""
        return self._portal.call(self._dead_letters.count())

    def list(self, limit: int = 100) -> builtins.list[DeadLetter]:
        """Return the oldest dead letters; they stay."""
        return self._portal.call(self._dead_letters.list(limit))

    def redrive(self, limit: int | None = None) -> int:
        """Push dead letters to their queue again; see `onebus.objects.deadletters.DeadLetters.redrive`."""
        return self._portal.call(self._dead_letters.redrive(limit))
