"""Under which names the objects of a bus live: each kind has its own, so that no two of them meet."""

from onebus.errors import InvalidName
from onebus.log.names import PLACE_SEPARATOR, check_name


def place_of_object(kind: str, name: str) -> str:
    """Return the place in which all logs and records of an object live.

    Raises:
        InvalidName: the name is empty, too long, or holds characters that it must not hold.
    """
    check_name(name)
    if PLACE_SEPARATOR in name:
        raise InvalidName(f"The name {name!r} holds {PLACE_SEPARATOR!r}, which separates the parts of an object.")
    return check_name(f"{kind}:{name}")
