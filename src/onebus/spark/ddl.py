"""Schemas in the words of SQL, looked at before Spark does: it says what is wrong with them, but not in which option.

What Spark knows must pass here, and what it does not know should not: names and types are checked, and what may follow
a type, such as ``NOT NULL`` or ``COMMENT 'text'``, is left to Spark.
"""

import re
from collections.abc import Iterator
from typing import Final

from onebus.errors import InvalidOption

_FIELD: Final = re.compile(r"\s*(?:`(?:[^`]|``)+`|[A-Za-z0-9_]+)\s*[\s:]\s*(.*)", re.DOTALL)
_TYPE: Final = re.compile(r"\s*(\w+)\s*(.*)", re.DOTALL)
_QUOTED: Final = re.compile(r"`[^`]*`|'[^']*'|\"[^\"]*\"")
_PLAIN: Final = frozenset(
    (
        "bigint",
        "binary",
        "boolean",
        "byte",
        "char",
        "character",
        "date",
        "dec",
        "decimal",
        "double",
        "float",
        "geography",
        "geometry",
        "int",
        "integer",
        "interval",
        "long",
        "numeric",
        "real",
        "short",
        "smallint",
        "string",
        "time",
        "timestamp",
        "timestamp_ltz",
        "timestamp_ntz",
        "tinyint",
        "varchar",
        "variant",
        "void",
    )
)
_INNER: Final = {"array": 1, "map": 2}
"""How many types these have inside."""


def check_fields(option: str, text: str) -> None:
    """Check that an option names fields and their types, such as ``page string, user long``.

    Raises:
        InvalidOption: it does not.
    """
    try:
        _check_fields(text)
    except ValueError as error:
        raise InvalidOption(
            f"The option {option} is fields and their types, such as 'page string, user long', and not {text!r}: "
            f"{error}."
        ) from None


def _check_fields(text: str) -> None:
    for part in _parts(text):
        field = _FIELD.fullmatch(part)
        if field is None:
            raise ValueError(f"{part.strip()!r} is no name and type")
        _check_type(field[1])


def _check_type(text: str) -> None:
    found = _TYPE.fullmatch(text)
    name = "" if found is None else found[1].lower()
    rest = "" if found is None else found[2]
    if name in _PLAIN:
        return
    if name not in _INNER and name != "struct":
        raise ValueError(f"there is no type {text.strip()!r}")
    inside, end, _ = rest.rpartition(">")
    if not rest.startswith("<") or not end:
        raise ValueError(f"{name} needs to say of what, such as {name}<…>")
    if name == "struct":
        if inside[1:].strip():
            _check_fields(inside[1:])
        return
    types = list(_parts(inside[1:]))
    if len(types) != _INNER[name]:
        raise ValueError(f"{name} has {_INNER[name]} types inside, and not {len(types)}")
    for one in types:
        _check_type(one)


def _parts(text: str) -> Iterator[str]:
    """Yield what is between commas, not counting those in brackets and quotes."""
    bare = _QUOTED.sub(lambda quoted: "_" * len(quoted[0]), text)
    start = depth = 0
    for at, letter in enumerate(bare):
        depth += (letter in "<(") - (letter in ">)")
        if depth < 0:
            break
        if letter == "," and not depth:
            yield text[start:at]
            start = at + 1
    if depth:
        raise ValueError("a bracket has no other")
    yield text[start:]
