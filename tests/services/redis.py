"""Redis: alone, as a cluster, and watched by sentinels."""

import secrets
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.services.certificate import Certificate
from tests.services.group import ServerGroup
from tests.services.patience import comes_true
from tests.services.port import free_port
from tests.services.process import Server, find_program

_SERVICE_NAME = "onebus"
_QUORUM = 2


class RedisServer(Server):
    """One Redis. Without `append_only` it forgets everything when it ends."""

    def __init__(
        self,
        append_only: bool = False,
        password: str | None = None,
        tls: bool = False,
        extra: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self.password = password
        self._append_only = append_only
        self._certificate = Certificate(self.folder) if tls else None
        self._extra = extra

    @property
    def url(self) -> str:
        scheme = "redis" if self._certificate is None else "rediss"
        login = "" if self.password is None else f":{quote(self.password, safe='')}@"
        return f"{scheme}://{login}127.0.0.1:{self.port}"

    @property
    def ca_file(self) -> Path:
        """The authority that a client of a TLS server has to trust."""
        if self._certificate is None:
            raise RuntimeError(f"{self} does not speak TLS")
        return self._certificate.ca_file

    def client(self) -> redis.Redis:
        """A client that does not try again: a test sees the first error."""
        return redis.Redis(
            host="127.0.0.1",
            port=self.port,
            password=self.password,
            ssl=self._certificate is not None,
            ssl_ca_certs=None if self._certificate is None else str(self._certificate.ca_file),
            retry=Retry(NoBackoff(), 0),
        )

    def command(self) -> Sequence[str]:
        program = find_program("redis-server", "redis-server")
        place = ["--bind", "127.0.0.1", "--dir", str(self.folder), "--save", ""]
        return [program, *place, *self._port_options(), *self._data_options(), *self._extra]

    def is_ready(self) -> bool:
        try:
            with self.client() as client:
                return bool(client.ping())
        except (redis.ConnectionError, redis.TimeoutError):
            return False

    def _port_options(self) -> Sequence[str]:
        if self._certificate is None:
            return ["--port", str(self.port)]
        certificate = [
            "--tls-cert-file",
            str(self._certificate.file),
            "--tls-key-file",
            str(self._certificate.key_file),
        ]
        clients = ["--tls-ca-cert-file", str(self._certificate.ca_file), "--tls-auth-clients", "no"]
        return ["--port", "0", "--tls-port", str(self.port), *certificate, *clients]

    def _data_options(self) -> Sequence[str]:
        password = [] if self.password is None else ["--requirepass", self.password]
        journal = ["--appendonly", "yes", "--appendfsync", "always"] if self._append_only else []
        return [*password, *journal]


class RedisCluster(ServerGroup):
    """Three masters without replicas."""

    def __init__(self) -> None:
        # The default bus port, 10000 above the port, may be taken.
        self._bus_ports = [free_port() for _ in range(3)]
        self.nodes = [RedisServer(extra=_cluster_options(bus_port)) for bus_port in self._bus_ports]
        super().__init__(self.nodes)
        self._joined = False

    @property
    def url(self) -> str:
        return f"redis+cluster://{_addresses(self.nodes)}"

    def wait_ready(self, deadline: float = 30.0) -> None:
        if not self._joined:
            for node in self.nodes:
                node.wait_ready(deadline)
            self._join()
            self._joined = True
        super().wait_ready(deadline)

    def is_ready(self) -> bool:
        return all(_cluster_state(node) == "ok" for node in self.nodes)

    def _join(self) -> None:
        program = find_program("redis-cli", "redis-tools")
        members = [f"127.0.0.1:{node.port}@{bus}" for node, bus in zip(self.nodes, self._bus_ports, strict=True)]
        self.nodes[0].run([program, "--cluster", "create", *members, "--cluster-yes"])


class _Sentinel(RedisServer):
    """Redis in the part of a watcher."""

    def __init__(self) -> None:
        super().__init__()
        self._id = secrets.token_hex(20)
        self._config = self.folder / "sentinel.conf"

    def watch(self, master: RedisServer, replica: RedisServer, others: Sequence["_Sentinel"]) -> None:
        """Write the configuration, which the sentinel then keeps up to date itself.

        It names everybody, since sentinels that have to find each other take seconds to do so.
        """
        lines = [
            f"sentinel myid {self._id}",
            f"sentinel monitor {_SERVICE_NAME} 127.0.0.1 {master.port} {_QUORUM}",
            f"sentinel down-after-milliseconds {_SERVICE_NAME} 1000",
            f"sentinel failover-timeout {_SERVICE_NAME} 3000",
            f"sentinel known-replica {_SERVICE_NAME} 127.0.0.1 {replica.port}",
            *(f"sentinel known-sentinel {_SERVICE_NAME} 127.0.0.1 {other.port} {other._id}" for other in others),
        ]
        self._config.write_text("\n".join(lines) + "\n")

    def command(self) -> Sequence[str]:
        program, *options = super().command()
        return [program, str(self._config), "--sentinel", *options]

    def sees_everybody(self) -> bool:
        with self.client() as client:
            try:
                client.execute_command("SENTINEL", "CKQUORUM", _SERVICE_NAME)
            except redis.ResponseError:
                return False
            master = client.sentinel_master(_SERVICE_NAME)
            replicas = client.sentinel_slaves(_SERVICE_NAME)
        followers = [replica for replica in replicas if replica["master-link-status"] == "ok"]
        return master["num-other-sentinels"] == 2 and len(followers) == 1


class RedisSentinel(ServerGroup):
    """A master, its replica and three sentinels that replace the master when it is gone for a second.

    `master` and `replica` are named by the part they play at the start.
    """

    def __init__(self) -> None:
        self.master = RedisServer(extra=["--repl-diskless-sync-delay", "0"])
        self.replica = RedisServer(extra=["--replicaof", "127.0.0.1", str(self.master.port)])
        self.sentinels = [_Sentinel() for _ in range(3)]
        for sentinel in self.sentinels:
            sentinel.watch(self.master, self.replica, [other for other in self.sentinels if other is not sentinel])
        super().__init__([self.master, self.replica, *self.sentinels])

    @property
    def url(self) -> str:
        return f"redis+sentinel://{_addresses(self.sentinels)}/{_SERVICE_NAME}"

    def start(self) -> None:
        self.master.start()
        self.master.wait_ready()
        self.replica.start()
        self.replica.wait_ready()
        # Sentinels look at a replica every ten seconds: the first look had better find it in step.
        if not comes_true(self._in_step, 10.0):
            raise self.replica.failure("does not follow its master")
        for sentinel in self.sentinels:
            sentinel.start()

    def is_ready(self) -> bool:
        return all(sentinel.sees_everybody() for sentinel in self.sentinels)

    def _in_step(self) -> bool:
        with self.replica.client() as client:
            return str(client.info("replication")["master_link_status"]) == "up"


def _cluster_options(bus_port: int) -> Sequence[str]:
    return ["--cluster-enabled", "yes", "--cluster-port", str(bus_port), "--cluster-node-timeout", "2000"]


def _cluster_state(node: RedisServer) -> str:
    with node.client() as client:
        return str(client.cluster("INFO")["cluster_state"])


def _addresses(servers: Sequence[Server]) -> str:
    return ",".join(f"127.0.0.1:{server.port}" for server in servers)
