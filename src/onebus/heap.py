"""The memory of a server: what one large batch has used is kept for the next one.

By default the C library hands large pieces of memory back as soon as they are free, and gets them again, page by page,
a moment later. To make a batch of a megabyte and hand it on takes two thirds more time with that.
"""

import ctypes
from typing import Final

KEPT_BYTES: Final = 128 * 1024 * 1024
"""More than this is handed back."""
LARGE_BYTES: Final = 32 * 1024 * 1024
"""Pieces of this size and more still come and go by themselves."""

# As in glibc's malloc.h.
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3


def keep_freed_memory() -> None:
    """Let the C library keep memory that is free, if it is one that can be told to."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, LARGE_BYTES)
        mallopt(_TRIM_THRESHOLD, KEPT_BYTES)
