"""Free ports for servers."""

import random
import socket

# Below the range the kernel takes client ports from. While a server is down, no client can be given its port,
# and no client that knocks in vain can end up connected to itself.
_SERVER_PORTS = range(10_000, 32_768)

_handed_out: set[int] = set()


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on and that this process was not given before."""
    for port in random.sample(_SERVER_PORTS, len(_SERVER_PORTS)):
        if port not in _handed_out and _is_free(port):
            _handed_out.add(port)
            return port
    raise OSError(f"no free port in {_SERVER_PORTS}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
