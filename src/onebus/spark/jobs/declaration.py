"""What somebody wants to be transformed, declared in one TOML file.

    sql = "SELECT visitor, count(*) AS clicks FROM clicks GROUP BY visitor, window(timestamp, '1 minute')"

    [from.clicks]
    schema = "visitor string, page string"
    watermark = "10 seconds"

    [to]
    topic = "clicks-per-minute"
    key = "visitor"

Each ``[from.NAME]`` is a stream that SQL knows as NAME and a Python function gets as its parameter NAME.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from onebus.errors import InvalidTransform
from onebus.spark.logs import FEED, QUEUE, TOPIC

S = TypeVar("S", bound=msgspec.Struct)


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where messages come from, and what is in them."""

    topic: str | None = None
    """One, or several with commas. Without topic and feed, the name of the stream is that of the topic."""
    feed: str | None = None
    schema: str | None = None
    """What is in the JSON, in the words of SQL; without it there is a column ``value`` with the text."""
    time: str = "timestamp"
    """The column with the time of the event; otherwise it is that at which the message was published."""
    watermark: str | None = None
    """How much later than the newest an event may come and still be regarded."""
    unique: tuple[str, ...] = ()
    """The columns of which the same values come only once within the watermark."""
    starting: str = "earliest"
    """Where the first run begins."""


class Destination(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where rows go: as JSON to one object of the bus, or to a table of the lake."""

    topic: str | None = None
    feed: str | None = None
    queue: str | None = None
    table: str | None = None
    key: str | None = None
    """The column that is the key of the message."""
    partitions: int | None = None
    """Of a topic that does not exist yet."""

    @property
    def of_bus(self) -> tuple[str, str]:
        """What kind of object of the bus rows go to, unless they go to a table, and its name."""
        named = ((TOPIC, self.topic), (FEED, self.feed), (QUEUE, self.queue))
        return next((kind, name) for kind, name in named if name is not None)


class Declaration(msgspec.Struct, frozen=True):
    """A file that has been read and checked."""

    file: Path
    sql: str | None
    python: str | None
    sources: Mapping[str, Source]
    to: Destination

    @classmethod
    def read(cls, file: Path | str) -> "Declaration":
        """Read a file.

        Raises:
            InvalidTransform: it cannot be read, or something in it is missing, unknown or impossible.
        """
        file = Path(file)
        try:
            content = tomllib.loads(file.read_text())
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise InvalidTransform(f"{file} cannot be read: {error}.") from None
        top = _checked(file, "", {**content, "from": {}, "to": {}}, _Top)
        sources, to = content.get("from"), content.get("to")
        if not isinstance(sources, dict) or not sources:
            raise InvalidTransform(f"{file}: from is missing. Say what is read with [from.NAME].")
        if to is None:
            raise InvalidTransform(f"{file}: to is missing. Say where rows go with [to].")
        declaration = cls(
            file,
            top.sql,
            top.python,
            {name: _checked(file, f"from.{name}", source, Source) for name, source in sources.items()},
            _checked(file, "to", to, Destination),
        )
        declaration._check_together()
        return declaration

    def wrong(self, key: str, text: str) -> InvalidTransform:
        """Return an error that names this file and a key in it."""
        return InvalidTransform(f"{self.file}: {key}: {text}")

    def _check_together(self) -> None:
        if (self.sql is None) == (self.python is None):
            raise self.wrong("sql", "Give exactly one of sql and python.")
        for name, source in self.sources.items():
            if source.topic is not None and source.feed is not None:
                raise self.wrong(f"from.{name}.feed", "A stream comes from topics or from a feed, and not from both.")
            if source.unique and source.watermark is None:
                raise self.wrong(f"from.{name}.unique", "How long is that to be remembered? Give a watermark, too.")
            if source.starting not in ("earliest", "latest"):
                raise self.wrong(f"from.{name}.starting", f"It is earliest or latest, and not {source.starting!r}.")
        to = self.to
        if sum(name is not None for name in (to.topic, to.feed, to.queue, to.table)) != 1:
            raise self.wrong("to", "Rows go to exactly one of topic, feed, queue and table.")
        if to.key is not None and to.topic is None and to.queue is None:
            raise self.wrong("to.key", "Only messages of topics and queues have keys.")
        if to.partitions is not None and to.topic is None:
            raise self.wrong("to.partitions", "Only topics have partitions.")


class _Top(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"from_": "from"}):
    sql: str | None = None
    python: str | None = None
    from_: dict[str, Any] = {}
    to: dict[str, Any] = {}


def _checked(file: Path, table: str, content: object, type_: type[S]) -> S:
    try:
        return msgspec.convert(content, type_)
    except msgspec.ValidationError as error:
        text, _, path = str(error).partition(" - at `$")
        key = (table + path.rstrip("`")).lstrip(".")
        raise InvalidTransform(f"{file}: {f'{key}: ' if key else ''}{text}. {_known(type_)}") from None


def _known(type_: type[msgspec.Struct]) -> str:
    return f"Known here are {', '.join(type_.__struct_encode_fields__)}."
