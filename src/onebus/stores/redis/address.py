"""Where a Redis is: what its URL says."""

import ipaddress
import re
from dataclasses import dataclass, field
from enum import Enum
from typing import Final
from urllib.parse import parse_qsl, unquote

from onebus.errors import InvalidUrl

REDIS_PORT: Final = 6379
SENTINEL_PORT: Final = 26379


class Mode(Enum):
    SINGLE = "single"
    SENTINEL = "sentinel"
    CLUSTER = "cluster"


_MODES = {"": Mode.SINGLE, "sentinel": Mode.SENTINEL, "cluster": Mode.CLUSTER}

_FORMS = {
    Mode.SINGLE: "redis://[user:password@]host[:port][/database]",
    Mode.SENTINEL: "redis+sentinel://[user:password@]host[:port],host[:port]/service[/database]",
    Mode.CLUSTER: "redis+cluster://[user:password@]host[:port],host[:port]",
}

_CERTIFICATE_CHECKS = {"required": True, "none": False}

_PASSWORDS = re.compile(r"//.*@|(?<=password=)[^&]*")


@dataclass(frozen=True, slots=True)
class Login:
    """A user and a password; without a user, Redis takes its default user."""

    username: str | None = None
    password: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Address:
    """The parts of a URL."""

    mode: Mode
    hosts: tuple[tuple[str, int], ...]
    """One server, or several of which one is enough to find all others."""
    database: int = 0
    service: str = ""
    """What the sentinels call the master."""
    login: Login = Login()
    sentinel_login: Login = Login()
    uses_tls: bool = False
    ca_file: str | None = None
    checks_certificate: bool = True

    @property
    def display(self) -> str:
        """The URL without its passwords."""
        scheme = "rediss" if self.uses_tls else "redis"
        if self.mode is not Mode.SINGLE:
            scheme += f"+{self.mode.value}"
        hosts = ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.hosts)
        service = f"/{self.service}" if self.service else ""
        database = f"/{self.database}" if self.database else ""
        return f"{scheme}://{hosts}{service}{database}"

    @property
    def is_loopback(self) -> bool:
        return all(_is_loopback(host) for host, _ in self.hosts)


def parse_address(url: str) -> Address:
    """Return the parts of a Redis URL.

    Raises:
        InvalidUrl: it has no host, or a part that Redis does not know.
    """
    scheme, _, rest = url.partition("://")
    protocol, _, kind = scheme.partition("+")
    mode = _MODES.get(kind)
    if protocol not in ("redis", "rediss") or mode is None or not rest:
        raise _invalid(url, Mode.SINGLE, "it does not start with redis://, rediss:// or one of their kin")
    rest, _, query = rest.partition("?")
    authority, _, path = rest.partition("/")
    credentials, _, hosts = authority.rpartition("@")
    try:
        service, database = _parse_path(path, mode)
        options = _parse_query(query, mode, uses_tls=protocol == "rediss")
        return Address(
            mode=mode,
            hosts=_parse_hosts(hosts, mode),
            database=database,
            service=service,
            login=_parse_login(credentials),
            sentinel_login=Login(options.get("sentinel_username"), options.get("sentinel_password")),
            uses_tls=protocol == "rediss",
            ca_file=options.get("ssl_ca_certs"),
            checks_certificate=_CERTIFICATE_CHECKS[options.get("ssl_cert_reqs", "required")],
        )
    except ValueError as error:
        raise _invalid(url, mode, str(error)) from None


def _parse_hosts(text: str, mode: Mode) -> tuple[tuple[str, int], ...]:
    default_port = SENTINEL_PORT if mode is Mode.SENTINEL else REDIS_PORT
    hosts = tuple(_parse_host(part, default_port) for part in text.split(","))
    if mode is Mode.SINGLE and len(hosts) > 1:
        raise ValueError("it names several hosts; write redis+sentinel:// or redis+cluster://, or give a list of URLs")
    return hosts


def _parse_host(text: str, default_port: int) -> tuple[str, int]:
    match = re.fullmatch(r"(?:\[([0-9a-fA-F:.]+)\]|([^:\[\]]+))(?::(\d+))?", text)
    if match is None:
        raise ValueError(f"{text!r} is not a host with a port" if text else "it names no host")
    port = int(match[3]) if match[3] else default_port
    if not 0 < port < 65536:
        raise ValueError(f"there is no port {port}")
    return match[1] or match[2], port


def _parse_path(path: str, mode: Mode) -> tuple[str, int]:
    parts = [unquote(part) for part in path.split("/") if part]
    service = ""
    if mode is Mode.SENTINEL:
        if not parts:
            raise ValueError("it does not say what the sentinels call the master")
        service = parts.pop(0)
    if mode is Mode.CLUSTER and parts:
        raise ValueError("a cluster has no databases to choose from")
    if len(parts) > 1 or not all(part.isdecimal() for part in parts):
        raise ValueError(f"{path!r} is not the number of a database")
    return service, int(parts[0]) if parts else 0


def _parse_login(text: str) -> Login:
    if not text:
        return Login()
    username, separator, password = text.partition(":")
    if not separator or not password:
        raise ValueError("it has a user without a password; a password alone is written as :password@")
    return Login(unquote(username) or None, unquote(password))


def _parse_query(query: str, mode: Mode, *, uses_tls: bool) -> dict[str, str]:
    known = ["ssl_ca_certs", "ssl_cert_reqs"] if uses_tls else []
    if mode is Mode.SENTINEL:
        known += ["sentinel_username", "sentinel_password"]
    options = dict(parse_qsl(query, keep_blank_values=True))
    for name in options:
        if name not in known:
            raise ValueError(f"{name!r} is not an option of it; known are: {', '.join(known) or 'none'}")
    if options.get("ssl_cert_reqs", "required") not in _CERTIFICATE_CHECKS:
        raise ValueError("ssl_cert_reqs is neither required nor none")
    return options


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _invalid(url: str, mode: Mode, reason: str) -> InvalidUrl:
    return InvalidUrl(f"{_PASSWORDS.sub(_hide, url)} is not a Redis URL: {reason}. Write {_FORMS[mode]}.")


def _hide(match: re.Match[str]) -> str:
    return "//…@" if match[0].startswith("//") else "…"
