"""What is said and done when messages are gone before they were read."""

import logging
from collections.abc import Sequence

from onebus.errors import MessagesLost
from onebus.spark.logs import SourceLog

_log = logging.getLogger("onebus.spark")


def missing_between(log: SourceLog, first: int, end: int) -> str:
    """Return in words which messages of a log are missing."""
    return f"{first} to {end - 1} of {log}"


def report_lost(missing: Sequence[str], *, fail: bool) -> None:
    """Say which messages are gone, if any are: with an error, or with a warning in the log.

    Raises:
        MessagesLost: some are gone, and that is to be an error.
    """
    if not missing:
        return
    if fail:
        raise MessagesLost(missing)
    _log.warning("Messages were gone before they were read: %s.", "; ".join(missing))
