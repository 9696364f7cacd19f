"""The messages that are sent: random, so that nothing can compress them, and stamped where time matters."""

import os
import time

STAMP_BYTES = 8


def payloads(count: int, size: int) -> list[bytes]:
    data = os.urandom(count * size)
    return [data[start : start + size] for start in range(0, count * size, size)]


class Stamper:
    """Makes payloads that say when they were made, by the clock that all processes of a machine share."""

    def __init__(self, size: int) -> None:
        self._padding = os.urandom(size - STAMP_BYTES)

    def payload(self) -> bytes:
        return time.monotonic_ns().to_bytes(STAMP_BYTES, "little") + self._padding


def age_ms(payload: bytes, now_ns: int) -> float:
    return (now_ns - int.from_bytes(payload[:STAMP_BYTES], "little")) / 1e6
