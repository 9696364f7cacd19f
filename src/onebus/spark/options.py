"""The options of a reader, named after those of the Kafka connector where there is one that does the same."""

import json
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from onebus.errors import InvalidOption
from onebus.spark.ddl import check_fields
from onebus.spark.given import Given
from onebus.spark.logs import DEAD, FEED, KINDS, QUEUE, TOPIC, Wanted
from onebus.spark.offsets import EARLIEST, LATEST, Boundary

_TYPES: Final = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "headers": "array<struct<key: string, value: binary>>",
}
_ALL_BUT_HEADERS: Final = tuple(name for name in _TYPES if name != "headers")


class ReadOptions(NamedTuple):
    """What somebody wants to read, and how."""

    urls: tuple[str, ...]
    wanted: Wanted
    starting: Boundary
    ending: Boundary
    min_partitions: int
    max_offsets_per_trigger: int | None
    fail_on_data_loss: bool
    schema: str
    """The columns, in the words of SQL."""

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool, default_url: str | None = None) -> "ReadOptions":
        """Read and check the options of a reader.

        Raises:
            InvalidOption: one is unknown, impossible, or goes with no other.
        """
        given = Given(options)
        parsed = cls(
            urls=given.urls(default_url),
            wanted=_wanted(given),
            starting=_boundary(
                given, "starting", LATEST if streaming else EARLIEST, never="" if streaming else "latest"
            ),
            ending=_boundary(given, "ending", LATEST, never="earliest"),
            min_partitions=given.number("minPartitions") or 1,
            max_offsets_per_trigger=given.number("maxOffsetsPerTrigger"),
            fail_on_data_loss=given.flag("failOnDataLoss", True),
            schema=_schema(given),
        )
        given.finish()
        parsed._check_together(streaming)
        return parsed

    def _check_together(self, streaming: bool) -> None:
        kind = self.wanted.kind
        if streaming and kind in (QUEUE, DEAD):
            raise InvalidOption(
                f"The option kind is {kind}, of which there is a snapshot but no stream: what is done goes. "
                "Read it with spark.read, or publish to a topic."
            )
        if streaming and self.ending != Boundary("endingOffsets", LATEST):
            raise InvalidOption(f"The option {self.ending.option} is for spark.read: a stream has no end.")
        if not streaming and self.max_offsets_per_trigger is not None:
            raise InvalidOption("The option maxOffsetsPerTrigger is for spark.readStream.")
        boundaries = (self.starting, EARLIEST), (self.ending, LATEST)
        for boundary, usual in boundaries if kind in (QUEUE, DEAD) else ():
            if boundary.everywhere != usual:
                raise InvalidOption(
                    f"The option {boundary.option} is not for queues, of which all that is there is read."
                )


def schema_of(options: Mapping[str, str]) -> str:
    """Return the columns that a reader with these options has; the other options are not looked at."""
    return _schema(Given(options))


def _wanted(given: Given) -> Wanted:
    kind = given.choice("kind", KINDS)
    names, pattern, assign = given.words("subscribe"), given.text("subscribePattern"), given.text("assign")
    site = given.text("site")
    if (names is not None) + (pattern is not None) + (assign is not None) != 1:
        raise InvalidOption("Say what to read with exactly one of the options subscribe, subscribePattern and assign.")
    if assign is not None and kind != TOPIC:
        raise InvalidOption(f"The option assign names partitions of topics, and kind is {kind}.")
    if site is not None and kind != FEED:
        raise InvalidOption(f"The option site is for feeds, and kind is {kind}.")
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise InvalidOption(f"The option subscribePattern is no regular expression: {error}.") from None
    return Wanted(kind, names, pattern, None if assign is None else _assigned(assign), site)


def _assigned(text: str) -> dict[str, tuple[int, ...]]:
    wrong = InvalidOption(f'The option assign is JSON such as {{"clicks": [0, 2]}}, and not {text!r}.')
    try:
        assigned = {topic: tuple(numbers) for topic, numbers in json.loads(text).items()}
    except (ValueError, AttributeError, TypeError):
        raise wrong from None
    for numbers in assigned.values():
        if not numbers or any(type(number) is not int or number < 0 for number in numbers):
            raise wrong
        if len(set(numbers)) < len(numbers):
            raise InvalidOption(f"The option assign names a partition twice: {text}.")
    if not assigned:
        raise wrong
    return assigned


def _boundary(given: Given, side: str, usual: int, *, never: str) -> Boundary:
    offsets, time_ms = given.text(f"{side}Offsets"), given.number(f"{side}Timestamp", at_least=0)
    if offsets is not None and time_ms is not None:
        raise InvalidOption(f"Only one of the options {side}Offsets and {side}Timestamp can be given.")
    if time_ms is not None:
        return Boundary(f"{side}Timestamp", time_ms=time_ms)
    if offsets is not None:
        return Boundary.parse(f"{side}Offsets", offsets, never=never)
    return Boundary(f"{side}Offsets", usual)


def _schema(given: Given) -> str:
    form, struct = given.choice("value", ("bytes", "text", "json")), given.text("schema")
    if (form == "json") != (struct is not None):
        raise InvalidOption(
            "The option schema says what is in the JSON: it goes with value=json, and each needs the other."
        )
    if struct is not None:
        check_fields("schema", struct)
    value = {"bytes": "binary", "text": "string", "json": f"struct<{struct}>"}[form]
    has_headers = given.flag("includeHeaders", False)
    columns = given.words("columns")
    for name in columns or ():
        if name not in _TYPES:
            raise InvalidOption(f"The option columns knows {', '.join(_TYPES)}, and not {name!r}.")
    if columns is None:
        columns = tuple(_TYPES) if has_headers else _ALL_BUT_HEADERS
    elif has_headers and "headers" not in columns:
        raise InvalidOption("The option includeHeaders is true, but the option columns does not name headers.")
    types = {**_TYPES, "value": value}
    return ", ".join(f"`{name}` {types[name]}" for name in columns)
