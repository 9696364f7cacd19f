"""What logs, records and signals may be called, and which of them live together."""

import unicodedata
from functools import lru_cache

from onebus.errors import InvalidName

MAX_NAME_BYTES = 255

PLACE_SEPARATOR = "|"

RESERVED_PREFIX = "onebus:"
"""Names that stores keep for themselves."""
_STAGING = "staged:"


def check_name(name: str) -> str:
    """Return `name` if every store can keep it, and raise `InvalidName` otherwise."""
    if not isinstance(name, str):
        raise InvalidName(f"A name must be text, not {type(name).__name__}.")
    return _checked(name)


# Every call of a store names a log, and the same few over and over.
@lru_cache(maxsize=10_000)
def _checked(name: str) -> str:
    if not name:
        raise InvalidName("A name must not be empty.")
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise InvalidName(f"The name {name!r} is not valid Unicode text.") from None
    if size > MAX_NAME_BYTES:
        raise InvalidName(f"The name {name[:40]!r}… has {size} bytes; at most {MAX_NAME_BYTES} are allowed.")
    if not name.isprintable() and any(unicodedata.category(character) == "Cc" for character in name):
        raise InvalidName(f"The name {name!r} holds control characters; remove them.")
    if name.startswith(RESERVED_PREFIX):
        raise InvalidName(f"The name {name!r} is reserved; choose one that does not start with {RESERVED_PREFIX!r}.")
    if name.startswith(PLACE_SEPARATOR):
        raise InvalidName(f"The name {name!r} starts with {PLACE_SEPARATOR!r}; put something before it.")
    return name


def place_of(name: str) -> str:
    """Return the part of a name that decides where it lives.

    Logs and records whose names agree up to the first ``|`` live on the same server, so that one
    append can write two of them atomically. A name without ``|`` is a place of its own.
    """
    return name.partition(PLACE_SEPARATOR)[0]


def staging_prefix(place: str) -> str:
    """Return what the names of all staging logs of a place begin with."""
    return f"{place}{PLACE_SEPARATOR}{_STAGING}"


def staging_name(log: str, token: str) -> str:
    """Return the name of a staging log of the same place, which no other one has if none has the token."""
    return staging_prefix(place_of(log)) + token


def is_staging(name: str) -> bool:
    """Return whether this is the name of a staging log."""
    return name.startswith(staging_prefix(place_of(name)))


def anchor_of(place: str) -> str:
    """Return the name of the log by which a place with several logs is found again."""
    return place + PLACE_SEPARATOR
