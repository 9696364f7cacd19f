"""A store in Redis 7 or Valkey: one server, a master watched by Sentinel, or a Cluster.

Every call is one Lua script (`scripts/`), so it happens as a whole or not at all. ``scripts/prelude/log.lua``
draws the keys.
"""

from onebus.errors import MissingDriver

try:
    import hiredis  # noqa: F401
    import redis  # noqa: F401
except ImportError as error:
    raise MissingDriver("Redis needs the libraries redis and hiredis: pip install 'onebus[redis]'") from error
