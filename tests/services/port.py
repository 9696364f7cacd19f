"""Free ports for servers."""

import os
import random
import socket

# Below the range the kernel takes client ports from. While a server is down, no client can be given its port,
# and no client that knocks in vain can end up connected to itself.
_ALL_SERVER_PORTS = range(10_000, 32_768)


def _own_ports() -> range:
    """Return the ports of this worker: nobody else may take one while its server is down for a moment."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    share = len(_ALL_SERVER_PORTS) // workers
    return _ALL_SERVER_PORTS[number * share : (number + 1) * share]


_SERVER_PORTS = _own_ports()
_handed_out: set[int] = set()


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on and that this process was not given before."""
    for port in random.sample(_SERVER_PORTS, len(_SERVER_PORTS)):
        if port not in _handed_out and _is_free(port):
            _handed_out.add(port)
            return port
    raise OSError(f"no free port in {_SERVER_PORTS}")


def is_listened_on(port: int) -> bool:
    """Return whether somebody listens on a port of 127.0.0.1."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
