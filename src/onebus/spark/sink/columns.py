"""The columns of what is written: which there may be, and of which types."""

from collections.abc import Callable, Mapping

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegralType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from onebus.errors import InvalidColumn
from onebus.spark.logs import FEED, QUEUE
from onebus.spark.sink.options import WriteOptions

_NOT_FOR: Mapping[str, tuple[str, ...]] = {FEED: ("key", "partition", "headers"), QUEUE: ("partition",)}


def _is_text_or_bytes(type_: DataType) -> bool:
    return isinstance(type_, StringType | BinaryType)


def _are_headers(type_: DataType) -> bool:
    if isinstance(type_, MapType):
        return isinstance(type_.keyType, StringType) and isinstance(type_.valueType, StringType)
    if not isinstance(type_, ArrayType) or not isinstance(type_.elementType, StructType):
        return False
    fields = type_.elementType.fields
    return (
        [field.name for field in fields] == ["key", "value"]
        and isinstance(fields[0].dataType, StringType)
        and _is_text_or_bytes(fields[1].dataType)
    )


_KNOWN: Mapping[str, tuple[Callable[[DataType], bool], str]] = {
    "value": (_is_text_or_bytes, "string or binary"),
    "key": (_is_text_or_bytes, "string or binary"),
    "topic": (lambda type_: isinstance(type_, StringType), "string"),
    "partition": (lambda type_: isinstance(type_, IntegralType), "int"),
    "headers": (_are_headers, "array<struct<key: string, value: binary>> or map<string, string>"),
    "timestamp": (lambda type_: isinstance(type_, TimestampType), "timestamp"),
}


def check_columns(schema: StructType, options: WriteOptions) -> None:
    """Check that rows with these columns can be written.

    Raises:
        InvalidColumn: one is missing, unknown, or of another type.
    """
    if "value" not in schema.names:
        raise InvalidColumn(
            "There is no column value. Write what the messages hold as value, such as to_json(struct(*))."
        )
    if options.topic is None and "topic" not in schema.names:
        raise InvalidColumn("Say where to write with the option topic, or with a column topic.")
    for field in schema.fields:
        if field.name not in _KNOWN:
            raise InvalidColumn(
                f"The column {field.name} is not known: a message has {', '.join(_KNOWN)}. "
                "Leave it out with select, or make it a part of value."
            )
        if field.name in _NOT_FOR.get(options.kind, ()):
            raise InvalidColumn(f"The column {field.name} means nothing to a {options.kind}. Leave it out with select.")
        is_good, wanted = _KNOWN[field.name]
        if not is_good(field.dataType):
            raise InvalidColumn(
                f"The column {field.name} is {field.dataType.simpleString()}, but must be {wanted}. "
                f"{_remedy(field.name, field.dataType)}"
            )


def _remedy(name: str, type_: DataType) -> str:
    if name == "value" and isinstance(type_, StructType | ArrayType | MapType):
        return "Write it as JSON, with to_json(value)."
    return f"Cast it, with cast({name} AS …)."
