"""Waiting for a condition."""

import time
from collections.abc import Callable

_PAUSE = 0.02


def comes_true(condition: Callable[[], bool], seconds: float) -> bool:
    """Ask again and again; False when the condition still does not hold after the given time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(_PAUSE)
    return True
