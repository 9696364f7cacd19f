"""Where reading begins and ends. An offset is the id of a message: the first to read, or the first to leave."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from onebus.errors import InvalidOption
from onebus.spark.logs import SourceLog

EARLIEST, LATEST = -2, -1
"""Instead of an offset: the oldest message that is there, or the one that will come next."""

_WORDS = {"earliest": EARLIEST, "latest": LATEST}

Place = tuple[str, int]
"""A topic and one of its partitions."""


class Boundary(NamedTuple):
    """Where reading begins, or ends: at one word or time for all partitions, or at an offset for each of them."""

    option: str
    everywhere: int | None = None
    time_ms: int | None = None
    each: Mapping[Place, int] | None = None

    @classmethod
    def parse(cls, option: str, text: str, *, never: str) -> "Boundary":
        """Read an option that is a word, or JSON such as ``{"clicks": {"0": 23, "1": -2}}``.

        Raises:
            InvalidOption: it is neither, or the word that makes no sense here.
        """
        word = text.strip().lower()
        wrong = InvalidOption(
            f"The option {option} is {' or '.join(word for word in _WORDS if word != never)}, or JSON such as "
            f'{{"clicks": {{"0": 23, "1": -2}}}}, and not {text!r}.'
        )
        if word in _WORDS:
            if word == never:
                raise wrong
            return cls(option, _WORDS[word])
        try:
            given = json.loads(text)
            each = {
                (topic, int(number)): offset for topic, numbers in given.items() for number, offset in numbers.items()
            }
        except (ValueError, AttributeError):
            raise wrong from None
        for offset in each.values():
            if type(offset) is not int or offset < EARLIEST or offset == _WORDS.get(never):
                raise wrong
        return cls(option, each=each)

    def of(self, log: SourceLog) -> int:
        """Return the offset, or the word, for one partition.

        Raises:
            InvalidOption: it is the only one that was not named.
        """
        if self.everywhere is not None:
            return self.everywhere
        place = log.topic, log.partition
        if self.each is None or place not in self.each:
            raise InvalidOption(
                f"The option {self.option} says nothing about partition {log.partition} of {log.topic!r}. "
                "Name all of them; -2 is earliest, and -1 latest."
            )
        return self.each[place]

    def check_places(self, logs: "list[SourceLog]") -> None:
        """Check that it names no partition that is not read.

        Raises:
            InvalidOption: it does.
        """
        read = {(log.topic, log.partition) for log in logs}
        for topic, partition in self.each or ():
            if (topic, partition) not in read:
                raise InvalidOption(
                    f"The option {self.option} names partition {partition} of {topic!r}, which is not read."
                )


class Position(NamedTuple):
    """How far a partition was read, in one life of its log."""

    offset: int
    epoch: str


class Offsets(dict[Place, Position]):
    """How far each partition was read: what a checkpoint keeps, as JSON.

    ``{"offsets": {"clicks": {"0": 25}}, "epochs": {"clicks": {"0": "4f1c"}}}``
    """

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> "Offsets":
        return cls(
            ((topic, int(number)), Position(offset, given["epochs"][topic][number]))
            for topic, numbers in given["offsets"].items()
            for number, offset in numbers.items()
        )

    def to_json(self) -> dict[str, Any]:
        offsets: dict[str, dict[str, int]] = {}
        epochs: dict[str, dict[str, str]] = {}
        for (topic, number), position in sorted(self.items()):
            offsets.setdefault(topic, {})[str(number)] = position.offset
            epochs.setdefault(topic, {})[str(number)] = position.epoch
        return {"offsets": offsets, "epochs": epochs}
