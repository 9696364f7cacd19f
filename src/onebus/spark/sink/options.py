"""The options of a writer."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from onebus.errors import InvalidName, InvalidOption
from onebus.log.names import PLACE_SEPARATOR, check_name
from onebus.objects.feeds.names import channel_name
from onebus.objects.places import place_of_object
from onebus.objects.topics.description import DEFAULT_PARTITIONS, MAX_PARTITIONS
from onebus.spark.given import Given
from onebus.spark.logs import FEED, QUEUE, TOPIC

KINDS: Final = (TOPIC, FEED, QUEUE)
"""What can be written to."""
BYTES, TEXT, JSON = "bytes", "text", "json"
FORMS: Final = (BYTES, TEXT, JSON)
"""What a value can be for those who consume it."""
MAX_SINK_ID_BYTES: Final = 100


class WriteOptions(NamedTuple):
    """Where somebody wants to write, and as what."""

    urls: tuple[str, ...]
    kind: str = TOPIC
    topic: str | None = None
    """The name of the topic, channel or queue; without it a column says that."""
    partitions: int = DEFAULT_PARTITIONS
    """For topics that do not exist yet."""
    site: str | None = None
    ttl_seconds: float | None = None
    """For queues that do not exist yet; without it they live for ever."""
    form: str | None = None
    """What the values are; without it, what the type of their column says."""
    sink_id: str | None = None
    """Who writes. What the same sink has written before is not written again."""
    batch_id: int = 0
    """Which of its batches a sink writes that is not a stream."""

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool, default_url: str | None = None) -> "WriteOptions":
        """Read and check the options of a writer.

        Raises:
            InvalidOption: one is unknown, impossible, or goes with no other.
        """
        given = Given(options)
        kind = given.choice("kind", KINDS)
        batch_id = given.number("batchId", at_least=0)
        parsed = cls(
            urls=given.urls(default_url),
            kind=kind,
            topic=given.text("topic"),
            partitions=_for_kind(given, "partitions", TOPIC, kind) or DEFAULT_PARTITIONS,
            site=given.text("site"),
            ttl_seconds=_for_kind(given, "ttl", QUEUE, kind),
            form=given.choice("value", FORMS) if given.text("value") else None,
            sink_id=_sink_id(given.text("sinkId")),
            batch_id=batch_id or 0,
        )
        # Spark hands over what is meant for itself, too.
        given.text("checkpointLocation")
        given.finish()
        if parsed.topic is not None:
            _check_topic(parsed, parsed.topic)
        if parsed.partitions > MAX_PARTITIONS:
            raise InvalidOption(f"The option partitions is at most {MAX_PARTITIONS}, and not {parsed.partitions}.")
        if parsed.site is not None and kind != FEED:
            raise InvalidOption(f"The option site is for feeds, and kind is {kind}.")
        if kind == FEED and parsed.form not in (None, JSON):
            raise InvalidOption(f"The option value is {parsed.form}, but feeds carry JSON.")
        if batch_id is not None and (streaming or parsed.sink_id is None):
            raise InvalidOption("The option batchId goes with sinkId, and is for df.write: a stream counts by itself.")
        return parsed


def check_target(options: WriteOptions, name: str) -> None:
    """Check that there can be a topic, channel or queue of this name.

    Raises:
        InvalidName: there cannot.
    """
    if options.kind == FEED:
        channel_name(name, options.site)
    else:
        place_of_object(options.kind, name)


def _check_topic(options: WriteOptions, name: str) -> None:
    try:
        check_target(options, name)
    except InvalidName as error:
        raise InvalidOption(f"The option topic cannot be used: {error}") from None


def _for_kind(given: Given, name: str, wanted: str, kind: str) -> int | None:
    number = given.number(name)
    if number is not None and kind != wanted:
        raise InvalidOption(f"The option {name} is for kind {wanted}, and kind is {kind}.")
    return number


def _sink_id(text: str | None) -> str | None:
    if text is None:
        return None
    try:
        check_name(text)
    except InvalidName as error:
        raise InvalidOption(f"The option sinkId cannot be used: {error}") from None
    if PLACE_SEPARATOR in text or len(text.encode()) > MAX_SINK_ID_BYTES:
        raise InvalidOption(f"The option sinkId has at most {MAX_SINK_ID_BYTES} bytes, and no {PLACE_SEPARATOR!r}.")
    return text
