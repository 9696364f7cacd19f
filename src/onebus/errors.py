"""Every error that onebus raises on purpose.

Each class is named after the situation, carries a stable ``code`` that all doors show alike, and says
with ``retryable`` whether the same call may succeed later without anything being changed.
"""

from collections.abc import Sequence
from typing import ClassVar


class BusError(Exception):
    """The root of everything that onebus raises on purpose."""

    code: ClassVar[str] = "bus_error"
    retryable: ClassVar[bool] = False


class InvalidArgument(BusError):
    """A value given by the caller cannot be used; nothing was changed."""

    code = "invalid_argument"


class InvalidName(InvalidArgument):
    """A name is empty, too long, or holds characters that no store can keep."""

    code = "invalid_name"


class InvalidUrl(InvalidArgument):
    """A store URL cannot be understood."""

    code = "invalid_url"


class UnknownScheme(InvalidUrl):
    """A store URL starts with a scheme that no store answers to."""

    code = "unknown_scheme"


class InvalidOption(InvalidArgument):
    """An option is not known, or its value is impossible; the text names the option."""

    code = "invalid_option"


class PayloadTooLarge(InvalidArgument):
    """A message or batch is larger than the configured limit; nothing was stored."""

    code = "payload_too_large"


class InvalidColumn(InvalidArgument):
    """A column that is to be written is missing, unknown, of another type, or holds what no message can."""

    code = "invalid_column"


class InvalidTransform(InvalidArgument):
    """A file that declares a transformation cannot be used; the text names the file and the key in it."""

    code = "invalid_transform"


class NotSerializable(InvalidArgument):
    """A value cannot be written as JSON; nothing was stored."""

    code = "not_serializable"


class AlreadyConnected(BusError):
    """The bus is connected already; disconnect it first."""

    code = "already_connected"


class NotConnected(BusError):
    """The bus is not connected; connect it first, or use it in ``async with``."""

    code = "not_connected"


class WouldDeadlock(BusError):
    """A blocking call was made in the thread that has to carry it out; make it in another thread."""

    code = "would_deadlock"


class UsedAfterFork(BusError):
    """The bus was connected before this process was forked, and belongs to the parent; create another one."""

    code = "used_after_fork"


class AlreadyAttached(BusError):
    """The object is attached or connected already; detach it first, or use another object of the same name."""

    code = "already_attached"


class NotAttached(BusError):
    """The object has to be attached or connected for this."""

    code = "not_attached"


class AlreadyConsuming(BusError):
    """The queue object is consuming already; stop it first, or use another object of the same name."""

    code = "already_consuming"


class Overloaded(BusError):
    """More waits to be stored than may wait; nothing of this call was accepted."""

    code = "overloaded"
    retryable = True


class NoOneServes(BusError):
    """Nobody serves the requested service at this moment."""

    code = "no_one_serves"
    retryable = True


class RequestTimedOut(BusError):
    """No reply came in time. The request may have been carried out."""

    code = "request_timed_out"
    retryable = True


class RequestFailed(BusError):
    """The service answered with an error; ``remote_code`` says which."""

    code = "request_failed"

    def __init__(self, message: str, remote_code: str = "error") -> None:
        super().__init__(message)
        self.remote_code = remote_code


class ServerUnavailable(BusError):
    """The server could not be reached, or did not answer in time. The request may have been carried out."""

    code = "server_unavailable"
    retryable = True


class MissingDriver(BusError):
    """The store needs a library that is not installed."""

    code = "missing_driver"


class SparkUnusable(BusError):
    """Spark cannot run here: Java or PySpark is missing or too old."""

    code = "spark_unusable"


class SparkFailed(BusError):
    """A job of Spark has failed; what it has committed before stays, and it may be started again."""

    code = "spark_failed"

    @classmethod
    def of(cls, text: str) -> "SparkFailed":
        """Return the error for what Spark says, of which the lines that name an error of onebus are enough."""
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        own = [line for line in lines if line.startswith("onebus.errors.")]
        return cls(own[-1].partition(": ")[2] if own else lines[0] if lines else "Spark does not say why.")


class LakeBusy(BusError):
    """Somebody else writes to the same lake; nothing of this batch is in it."""

    code = "lake_busy"


class LakeDamaged(BusError):
    """What is in a lake is not what was written to it."""

    code = "lake_damaged"


class LakeMissing(BusError):
    """There is no lake where one was to be read."""

    code = "lake_missing"


class CorruptBatch(BusError):
    """Stored bytes are not a whole and unchanged record batch; they are never delivered."""

    code = "corrupt_batch"


class LeaseLost(BusError):
    """Some of the messages are no longer held by this lease: others hold them, or they are gone.

    ``lost`` names the ranges of ids; the call took effect for every other range it was given.
    """

    code = "lease_lost"

    def __init__(self, log: str, lost: Sequence[tuple[int, int]]) -> None:
        ranges = ", ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in lost)
        super().__init__(
            f"The lease on messages {ranges} of {log!r} has been lost. They may be delivered again: "
            "make the lease longer than the work takes, or extend it while working."
        )
        self.log = log
        self.lost = tuple(lost)


class LogFull(BusError):
    """With this batch, more messages of the log would be unfinished than its capacity allows; nothing was appended.

    ``room`` is how many messages would have fitted at that moment.
    """

    code = "log_full"
    retryable = True

    def __init__(self, log: str, room: int) -> None:
        super().__init__(
            f"The log {log!r} has reached its capacity: {room} more messages would have fitted. "
            "Wait until some are settled, append fewer at once, or raise the capacity."
        )
        self.log = log
        self.room = room


class AlreadyAppended(BusError):
    """The log has had this append, or a later one of the same source; nothing was changed.

    ``number`` is the newest append of the source, and ``first_id`` the id of the first message of that one.
    """

    code = "already_appended"

    def __init__(self, log: str, source: str, number: int, first_id: int) -> None:
        super().__init__(
            f"The log {log!r} has had append {number} of {source!r}. Go on with a greater number, "
            "or append nothing if this was meant to be a repetition."
        )
        self.log = log
        self.source = source
        self.number = number
        self.first_id = first_id


class StagingLost(BusError):
    """What was staged to be written is gone, because it waited for too long; nothing of it was written."""

    code = "staging_lost"


class VersionConflict(BusError):
    """A record was changed by somebody else since it was read; nothing was written."""

    code = "version_conflict"
    retryable = True


class TopicExists(BusError):
    """A topic of that name exists already; nothing was changed."""

    code = "topic_exists"


class TopicMissing(BusError):
    """There is no topic of that name."""

    code = "topic_missing"


class PartitionLost(BusError):
    """The partition belongs to another member of the group by now; what was read of it is delivered there again."""

    code = "partition_lost"


class MessagesMissed(BusError):
    """A subscriber was away for so long, or so slow, that messages were forgotten; those after them follow."""

    code = "messages_missed"

    def __init__(self, channel: str, first: int, last: int) -> None:
        super().__init__(f"The messages {first} to {last} of {channel!r} were forgotten before they were read.")
        self.channel = channel
        self.first = first
        self.last = last


class MessagesLost(BusError):
    """Messages that were to be read are gone: forgotten, or deleted with their log, before they were read.

    ``missing`` names them in words, partition by partition.
    """

    code = "messages_lost"

    def __init__(self, missing: Sequence[str]) -> None:
        super().__init__(
            f"Messages were gone before they were read: {'; '.join(missing)}. Keep messages for longer than the reader "
            "may be away. To go on with what is left, set failOnDataLoss to false."
        )
        self.missing = tuple(missing)


class SignalsMissed(BusError):
    """A listener read its signals too slowly, and the oldest of them were dropped; it may go on listening."""

    code = "signals_missed"
    retryable = True


class StoreError(BusError):
    """The store refused a call for a reason of its own."""

    code = "store_error"


class StoreUnavailable(StoreError):
    """The store could not be reached, or did not answer before the deadline.

    Where the call was a write that had already been sent, it may or may not have taken effect.
    """

    code = "store_unavailable"
    retryable = True
    was_sent = True
    """False when it is certain that the call never reached the store."""


class StoreClosed(StoreError):
    """The store has not been opened, or has been closed."""

    code = "store_closed"


class StoreFull(StoreError):
    """The store has no room left; nothing was stored."""

    code = "store_full"
    retryable = True


class AccessDenied(StoreError):
    """The store does not accept the user, the password, or what the user tried to do."""

    code = "access_denied"


class SchemaTooNew(StoreError):
    """The database was written by a newer onebus than this one."""

    code = "schema_too_new"
