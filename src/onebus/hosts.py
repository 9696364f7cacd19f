"""Which names and addresses are those of the machine itself."""

from ipaddress import ip_address


def is_this_machine(host: str) -> bool:
    """Return whether a name or an address is that of the machine itself, which nobody else can reach."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
