"""From JSON to a column of structs.

Each message is parsed by a decoder made for the schema, at once into the fields that are wanted. A message that is no
JSON object is null. A field that is not what the schema says is null, and the others of its message are kept.
"""

import datetime
import decimal
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from onebus.errors import InvalidOption

_NO_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What a decoder raises where there is no JSON; text that is no UTF-8 only where it looks at it."""
_NO_ROOM = (pa.ArrowException, ArithmeticError, ValueError)
"""What Arrow raises for a value that a type cannot hold."""


class Parser:
    """Parses messages into one type of struct."""

    def __init__(self, type_: pa.StructType) -> None:
        self._type = type_
        self._fields = list(type_)
        # Fields are numbered, because their names may be no names of attributes.
        self._attributes = [f"field_{number}" for number in range(len(self._fields))]
        self._decoder = msgspec.json.Decoder(_struct(type_))
        self._field_types = [_optional(field.type) for field in self._fields]

    def parse(self, values: Sequence[bytes]) -> pa.StructArray:
        """Return the messages as structs; those that are no objects are null."""
        objects = [self._object(value) for value in values]
        columns = [
            _array([None if one is None else getattr(one, attribute) for one in objects], field.type)
            for attribute, field in zip(self._attributes, self._fields, strict=True)
        ]
        mask = pa.array([one is None for one in objects], pa.bool_())
        return pa.StructArray.from_arrays(columns, fields=self._fields, mask=mask)

    def _object(self, value: bytes) -> Any:
        try:
            return self._decoder.decode(value)
        except msgspec.ValidationError:
            return self._salvaged(value)
        except _NO_JSON:
            return None

    def _salvaged(self, value: bytes) -> Any:
        """Return a message of which some fields are not what they should be."""
        try:
            fields = msgspec.json.decode(value)
        except _NO_JSON:
            return None
        if not isinstance(fields, dict):
            return None
        kept = [
            _converted(fields.get(field.name), type_)
            for field, type_ in zip(self._fields, self._field_types, strict=True)
        ]
        return self._decoder.type(*kept)


def _converted(value: Any, type_: Any) -> Any:
    try:
        return msgspec.convert(value, type_)
    except (msgspec.ValidationError, RecursionError):
        return None


def _array(values: list[Any], type_: pa.DataType) -> pa.Array:
    if pa.types.is_nested(type_):
        values = [None if value is None else msgspec.to_builtins(value, builtin_types=_KEPT) for value in values]
    try:
        return _checked(pa.array(values, type_))
    except _NO_ROOM:
        # One of them is beyond what the type can hold, for example a number with more digits than its decimals have.
        return pa.concat_arrays([_cell(value, type_) for value in values])


def _cell(value: Any, type_: pa.DataType) -> pa.Array:
    try:
        return _checked(pa.array([value], type_))
    except _NO_ROOM:
        return pa.nulls(1, type_)


def _checked(array: pa.Array) -> pa.Array:
    """Return an array in which all times are such that Python can read them.

    In the time zone in which it was written, a time may be within the years 1 to 9999, and in UTC not any more. Arrow
    holds it, and whoever makes a row of it fails.

    Raises:
        OverflowError: there is another time in it.
    """
    types = pa.types
    if types.is_timestamp(array.type):
        # These are cheap to find, unlike the moments themselves.
        bounds = pc.min_max(array.cast(pa.int64())).as_py()
        if bounds["min"] is not None and not _FIRST_US <= bounds["min"] <= bounds["max"] <= _LAST_US:
            raise OverflowError("A time is before the year 1 or after the year 9999.")
    elif types.is_struct(array.type):
        for child in array.flatten():
            _checked(child)
    elif types.is_map(array.type):
        _checked(array.items)
    elif types.is_list(array.type):
        _checked(array.flatten())
    return array


_FIRST_US = -62_135_596_800_000_000
_LAST_US = 253_402_300_799_999_999
"""The first and the last moment of the years 1 to 9999, in microseconds since 1970."""
_KEPT = (bytes, datetime.datetime, datetime.date, decimal.Decimal)


def _struct(type_: pa.StructType) -> Any:
    fields = [(f"field_{number}", _optional(field.type), None) for number, field in enumerate(type_)]
    names = {f"field_{number}": field.name for number, field in enumerate(type_)}
    return msgspec.defstruct("Parsed", fields, rename=names, gc=False)


def _optional(type_: pa.DataType) -> Any:
    return _python_type(type_) | None


def _python_type(type_: pa.DataType) -> Any:
    """Return what a decoder makes of a type.

    Raises:
        InvalidOption: JSON has no words for it.
    """
    types = pa.types
    if types.is_struct(type_):
        return _struct(type_)
    if types.is_list(type_):
        return list[_optional(type_.value_type)]  # type: ignore[misc]
    if types.is_map(type_):
        if not types.is_string(type_.key_type):
            raise InvalidOption(
                f"The option schema names {type_}, but the keys of JSON are text: write map<string, …>."
            )
        return dict[str, _optional(type_.item_type)]  # type: ignore[misc]
    if types.is_integer(type_):
        most = 2 ** (type_.bit_width - 1)
        return Annotated[int, Meta(ge=-most, le=most - 1)]
    if types.is_timestamp(type_):
        return Annotated[datetime.datetime, Meta(tz=type_.tz is not None)]
    for is_type, python_type in _PLAIN:
        if is_type(type_):
            return python_type
    raise InvalidOption(f"The option schema names the type {type_}, which cannot be read from JSON.")


_PLAIN = (
    (pa.types.is_string, str),
    (pa.types.is_boolean, bool),
    (pa.types.is_floating, float),
    (pa.types.is_binary, bytes),
    (pa.types.is_date, datetime.date),
    (pa.types.is_decimal, decimal.Decimal),
)
