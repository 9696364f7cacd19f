"""How much has gone out through a door. Plain numbers, because they are counted for every client and message."""

from collections import Counter


class Traffic:
    """What was sent to clients since the start, by transport."""

    def __init__(self) -> None:
        self.messages: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self.lag_seconds = 0.0
        """How long ago the message that arrived last was published when it did."""

    def sent(self, transport: str, messages: int, size: int) -> None:
        self.messages[transport] += messages
        self.bytes[transport] += size
