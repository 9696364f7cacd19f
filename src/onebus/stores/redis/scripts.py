"""The Lua scripts by name, each with what they share in front of it."""

from dataclasses import dataclass
from hashlib import sha1
from importlib.resources import files
from typing import Final

_FOLDER = files("onebus.stores.redis") / "scripts"
_PRELUDE: Final = ("log", "batches", "holds", "deletion")


@dataclass(frozen=True, slots=True)
class Script:
    """A script as Redis knows it: its text, and the digest that stands for it once Redis has seen the text."""

    text: bytes
    digest: str


def _load(name: str) -> Script:
    # Redis wants the line with the script's flags to be the first one.
    flags, _, body = (_FOLDER / f"{name}.lua").read_text().partition("\n")
    text = f"{flags}\n{_prelude}\n{body}".encode()
    return Script(text, sha1(text, usedforsecurity=False).hexdigest())


_prelude = "\n".join((_FOLDER / "prelude" / f"{part}.lua").read_text() for part in _PRELUDE)

APPEND = _load("append")
READ = _load("read")
CLAIM = _load("claim")
CHANGE = _load("change")
TRIM = _load("trim")
STAT = _load("stat")
UNFINISHED = _load("unfinished")
UNWAIT = _load("unwait")
TOUCH = _load("touch")
CLEAR = _load("clear")
DROP = _load("drop")
PROBE = _load("probe")
PRESENT = _load("present")
PUT = _load("put")
GET = _load("get")
DELETE = _load("delete")
