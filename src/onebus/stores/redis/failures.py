"""From the errors of redis-py to those of onebus."""

from typing import Final

from redis import exceptions
from redis.asyncio.sentinel import MasterNotFoundError

from onebus.errors import AccessDenied, StoreError, StoreFull, StoreUnavailable

_DENIED: Final = (exceptions.AuthenticationError, exceptions.AuthorizationError, exceptions.NoPermissionError)

_AWAY: Final = (
    exceptions.ConnectionError,
    exceptions.TimeoutError,
    exceptions.ReadOnlyError,
    exceptions.ClusterDownError,
    exceptions.MasterDownError,
    exceptions.TryAgainError,
    exceptions.SlotNotCoveredError,
    exceptions.RedisClusterException,
    exceptions.ClusterError,
)

# How Redis 7.2 and 7.0 say that the user may run a script, but not what the script does.
_DENIED_IN_SCRIPT: Final = ("ACL failure in script", "The user executing the script can't")

_AWAY_CODES: Final = ("BUSY ", "NOREPLICAS ", "UNBLOCKED ")


def translate(error: Exception, url: str) -> StoreError:
    """Return what to raise for `error`; `url` must not hold a password."""
    if _is_refusal(error):
        return AccessDenied(f"Redis at {url} refuses: {_text(error)}. Check user, password and permissions (ACL).")
    if isinstance(error, exceptions.OutOfMemoryError):
        return StoreFull(f"Redis at {url} has reached its maxmemory: {_text(error)}. Consume messages or raise it.")
    if isinstance(error, exceptions.AskError):
        return StoreError(f"Redis at {url} belongs to a cluster. Write redis+cluster:// in its URL.")
    if isinstance(error, _AWAY) or str(error).startswith(_AWAY_CODES):
        return StoreUnavailable(
            f"Redis at {url} cannot be reached: {_text(error)}. Check that it runs and that the address is right."
        )
    return StoreError(f"Redis at {url} failed: {_text(error)}.")


def _is_refusal(error: BaseException | None) -> bool:
    if isinstance(error, exceptions.RedisClusterException):
        # It wraps the reason why the last node could not be asked for the others.
        return _is_refusal(error.__cause__ or error.__context__)
    if isinstance(error, MasterNotFoundError):
        return "AuthenticationError" in str(error) or "NoPermissionError" in str(error)
    return isinstance(error, _DENIED) or str(error).startswith(_DENIED_IN_SCRIPT)


def _text(error: BaseException) -> str:
    return str(error).rstrip(".") or type(error).__name__
