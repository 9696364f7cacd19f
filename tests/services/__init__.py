"""Real servers for tests and benchmarks, each in a folder and on a port of its own.

with RedisServer(append_only=True) as server:
    server.client().ping()
"""

from tests.services.broker import BrokerServer
from tests.services.mariadb import MariaDbServer
from tests.services.onebus import OnebusServer
from tests.services.postgres import PostgresServer
from tests.services.process import MissingService, Server, ServiceFailed
from tests.services.redis import RedisCluster, RedisSentinel, RedisServer

__all__ = [
    "BrokerServer",
    "MariaDbServer",
    "MissingService",
    "OnebusServer",
    "PostgresServer",
    "RedisCluster",
    "RedisSentinel",
    "RedisServer",
    "Server",
    "ServiceFailed",
]
