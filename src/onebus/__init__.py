"""One message bus from the browser tab to the Spark job."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onebus.bus import Bus
    from onebus.message import Message
    from onebus.objects.persistable import Persistable

__all__ = ["Bus", "Message", "Persistable"]

__version__ = "0.1.0"

_HOMES = {"Bus": "onebus.bus", "Message": "onebus.message", "Persistable": "onebus.objects.persistable"}


def __getattr__(name: str) -> object:
    # Loaded when they are asked for: whoever imports a part of onebus, as its command does, need not wait for all.
    if name not in _HOMES:
        raise AttributeError(f"module 'onebus' has no attribute {name!r}")
    found = getattr(import_module(_HOMES[name]), name)
    globals()[name] = found
    return found
