"""The Lua scripts by name, each with what they share in front of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha1
from importlib.resources import files
from typing import Final

_FOLDER = files("onebus.stores.redis") / "scripts"
_PRELUDE: Final = ("log", "holds", "carving", "batches", "deletion")
_APPENDING: Final = (*_PRELUDE, "appending")


@dataclass(frozen=True, slots=True)
class Script:
    """A script as Redis knows it: its text, and the digest that stands for it once Redis has seen the text."""

    text: bytes
    digest: str


def _load(name: str, parts: Sequence[str] = _PRELUDE) -> Script:
    prelude = "\n".join((_FOLDER / "prelude" / f"{part}.lua").read_text() for part in parts)
    # Redis wants the line with the script's flags to be the first one.
    flags, _, body = (_FOLDER / f"{name}.lua").read_text().partition("\n")
    text = f"{flags}\n{prelude}\n{body}".encode()
    return Script(text, sha1(text, usedforsecurity=False).hexdigest())


APPEND = _load("append", _APPENDING)
# Making functions that nobody calls would take a good part of its time.
APPEND_PLAIN = _load("append", ("log", "holds", "appending"))
TRANSFER = _load("transfer", _APPENDING)
UNMARK = _load("unmark")
READ = _load("read")
# Sent with their texts each time.
HEAD = _load("head", ("log", "holds"))
ADOPT = _load("adopt", ("log", "holds", "appending"))
CLAIM = _load("claim")
CHANGE = _load("change")
TRIM = _load("trim")
FORGET = _load("forget")
STAT = _load("stat")
UNFINISHED = _load("unfinished")
UNWAIT = _load("unwait")
TOUCH = _load("touch")
CLEAR = _load("clear")
DROP = _load("drop")
# Sent as it is, perhaps before we have logged in: Redis then hears short commands only.
PROBE = _load("probe", ())
PRESENT = _load("present")
PUT = _load("put")
GET = _load("get")
DELETE = _load("delete")
