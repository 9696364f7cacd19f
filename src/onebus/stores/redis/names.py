"""From the names of logs, records and signals to those of keys and channels, and back."""

import re
from collections.abc import Iterable
from enum import Enum
from functools import lru_cache
from typing import Final
from urllib.parse import unquote

from onebus.log.names import place_of

PREFIX: Final = "onebus:"

_LOG_KINDS: Final = ("log", "batches", "holds", "due", "free", "apart")
_FIELD: Final = b"f:"
_MARK: Final = b"m:"

# A brace in a name would end the hash tag early, and the keys of a log would be scattered over the cluster.
_ESCAPES = str.maketrans({"%": "%25", "{": "%7B", "}": "%7D"})
_GLOB = re.compile(r"([*?\[\]\\^])")


@lru_cache(maxsize=10_000)
def log_keys(log: str) -> tuple[bytes, ...]:
    """Return the keys of a log, in the order in which the scripts expect them."""
    stem = _stem(log)
    return tuple(f"{stem}:{kind}".encode() for kind in _LOG_KINDS)


def apart_key(log: str, token: str) -> bytes:
    """Return the key of a batch that lies apart from the log in which it is staged."""
    return f"{_stem(log)}:apart:{token}".encode()


def record_key(name: str) -> bytes:
    return f"{_stem(name)}:record".encode()


def log_pattern(prefix: str) -> str:
    """Return what SCAN matches to find the logs whose names start with `prefix`."""
    place = place_of(prefix)
    # Only a prefix with a separator says where the place, and with it the hash tag, ends.
    tag = f"{{{_escape(place)}" + ("}" if len(place) < len(prefix) else "")
    return PREFIX + _GLOB.sub(r"\\\1", tag + _escape(prefix[len(place) :])) + "*:log"


def log_of_key(key: bytes) -> str:
    tag, _, rest = key.decode()[len(PREFIX) + 1 : -len(":log")].partition("}")
    return unquote(tag + rest)


def to_field(name: str) -> bytes:
    return _FIELD + name.encode()


def mark_field(source: str) -> bytes:
    return _MARK + source.encode()


def user_fields(items: Iterable[tuple[bytes, bytes]]) -> dict[str, bytes]:
    return {name[len(_FIELD) :].decode(): value for name, value in items if name.startswith(_FIELD)}


class Topic(Enum):
    """What is told on a channel."""

    GROWTH = b"grown"
    SIGNAL = b"signal"
    HANDED = b"handed"


class Channels:
    """The pub/sub channels of one database. Redis has them in common for all databases, so they carry its number."""

    def __init__(self, database: int) -> None:
        stem = f"{PREFIX}{database}:".encode()
        self._grown, self._signal, self._handed = (stem + topic.value + b":" for topic in Topic)

    def of_growth(self, log: str) -> bytes:
        return self._grown + log.encode()

    def of_signal(self, name: str) -> bytes:
        return self._signal + name.encode()

    def of_waiter(self, token: str) -> bytes:
        return self._handed + token.encode()

    def parse(self, channel: bytes) -> tuple[Topic, str]:
        """Return what a channel is about, and the log, signal or waiter."""
        _, _, topic, name = channel.split(b":", 3)
        return Topic(topic), name.decode()


def _stem(name: str) -> str:
    place = place_of(name)
    return f"{PREFIX}{{{_escape(place)}}}{_escape(name[len(place) :])}"


def _escape(text: str) -> str:
    return text.translate(_ESCAPES)
