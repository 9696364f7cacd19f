"""Where the sockets of a broker are."""

from typing import Final
from urllib.parse import urlsplit

from onebus.errors import InvalidArgument
from onebus.hosts import is_this_machine

CONSUMER_SOCKET_ADDR: Final = "tcp://127.0.0.1:9998"
PUBLISHER_SOCKET_ADDR: Final = "tcp://127.0.0.1:9997"
MGMT_URL: Final = "http://127.0.0.1:9999"


def receipt_address(publisher_socket_addr: str) -> str:
    """Return where publishers get receipts: at the port before the one for those who do not ask for them.

    Raises:
        InvalidArgument: the address has no port.
    """
    host, port = host_and_port(publisher_socket_addr)
    return f"tcp://{host}:{port - 1}"


def host_and_port(address: str) -> tuple[str, int]:
    """Return the host and the port of an address such as ``tcp://127.0.0.1:9997``.

    Raises:
        InvalidArgument: it is no such address.
    """
    parts = urlsplit(address)
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or not port:
        raise InvalidArgument(f"An address looks like tcp://127.0.0.1:9997 or http://127.0.0.1:9999, not {address!r}.")
    return (f"[{host}]" if ":" in host else host), port


def is_on_this_machine(address: str) -> bool:
    """Return whether nobody on another machine can reach an address."""
    return is_this_machine(host_and_port(address)[0].strip("[]"))
