"""What `onebus doctor` says about a Redis."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from redis.exceptions import ResponseError

from onebus.stores.base import Finding, Inspection, Verdict
from onebus.stores.redis.address import Address, Mode
from onebus.stores.redis.connection import DRIVER_ERRORS, Connections, Node
from onebus.stores.redis.failures import translate

Facts = Mapping[str, Any]

_SETTINGS: Final = ("appendonly", "appendfsync", "save", "maxmemory", "maxmemory-policy", "min-replicas-to-write")

_ENABLE_AOF: Final = "Set `appendonly yes` in redis.conf, or: redis-cli CONFIG SET appendonly yes."


async def inspect_redis(address: Address, connections: Connections) -> Inspection:
    """Look at every server that holds data; what is true of several is said once."""
    findings: dict[Finding, None] = {}
    info: Facts = {}
    try:
        for node in await connections.nodes():
            info = await node("INFO")
            settings = await _settings(node)
            findings |= dict.fromkeys(_findings(address, info, settings))
    except DRIVER_ERRORS as error:
        raise translate(error, connections.url) from error
    is_valkey = info.get("server_name") == "valkey"
    version = info.get("valkey_version") if is_valkey else info.get("redis_version")
    return Inspection("Valkey" if is_valkey else "Redis", str(version or ""), list(findings))


async def _settings(node: Node) -> Facts | None:
    """Return the server's settings; None where it does not show them, as managed servers do."""
    try:
        found: Facts = await node("CONFIG GET", *_SETTINGS)
    except ResponseError:
        return None
    return found


def _findings(address: Address, info: Facts, settings: Facts | None) -> Iterator[Finding]:
    yield _durability(info, settings)
    yield _eviction(info)
    yield _replication(address, info, settings)
    if not address.is_loopback:
        yield from _exposure(address)


def _durability(info: Facts, settings: Facts | None) -> Finding:
    topic = "durability"
    if not info.get("aof_enabled"):
        if settings is not None and not settings.get("save"):
            text = "Redis keeps nothing on disk: all messages are lost if it stops."
        else:
            text = "Messages since the last snapshot are lost if Redis stops: it does not keep an append-only file."
        return Finding(topic, text, Verdict.BAD, _ENABLE_AOF)
    if settings is None:
        text = "Redis keeps an append-only file, but does not let us see how often it is flushed (appendfsync)."
        return Finding(topic, text, Verdict.INFO, "Look it up in your provider's console; `always` is the safest.")
    match settings.get("appendfsync"):
        case "always":
            return Finding(topic, "An acknowledged message is on disk (appendfsync always).", Verdict.GOOD)
        case "everysec":
            text = "Up to one second of acknowledged messages is lost if the machine stops (appendfsync everysec)."
            return Finding(topic, text, Verdict.INFO, "Set `appendfsync always` if that is too much; it is slower.")
    text = "The operating system decides when messages reach the disk (appendfsync no): many seconds may be lost."
    return Finding(topic, text, Verdict.BAD, "Set `appendfsync everysec` or `always`.")


def _eviction(info: Facts) -> Finding:
    limit, policy = int(info.get("maxmemory", 0)), info.get("maxmemory_policy", "noeviction")
    if not limit:
        return Finding("memory", "Redis may use all memory of its machine (no maxmemory).", Verdict.INFO)
    if policy == "noeviction":
        return Finding("memory", f"When {limit} bytes are used, appends are refused and nothing is lost.", Verdict.GOOD)
    text = f"When {limit} bytes are used, Redis deletes messages to make room (maxmemory-policy {policy})."
    return Finding("memory", text, Verdict.BAD, "Set `maxmemory-policy noeviction`, or use another Redis for caches.")


def _replication(address: Address, info: Facts, settings: Facts | None) -> Finding:
    replicas = int(info.get("connected_slaves", 0))
    role = {
        Mode.SINGLE: "One server",
        Mode.SENTINEL: f"The master {address.service!r}, watched by sentinels,",
        Mode.CLUSTER: "A node of the cluster",
    }[address.mode]
    if replicas == 0:
        text = f"{role} has no replica: while it is down, nobody can reach its messages."
        verdict = Verdict.INFO if address.mode is Mode.SINGLE else Verdict.BAD
        return Finding("replication", text, verdict, "Add a replica if that matters.")
    text = f"{role} has {replicas} replica(s). Copies are made a moment later: a failover can lose the last messages."
    if settings is not None and int(settings.get("min-replicas-to-write", 0)) > 0:
        return Finding("replication", f"{text} Writes stop when replicas lag (min-replicas-to-write).", Verdict.INFO)
    return Finding("replication", text, Verdict.INFO, "`min-replicas-to-write 1` limits what can be lost.")


def _exposure(address: Address) -> Iterator[Finding]:
    if address.login.password is None:
        text = "Redis is asked over the network without a password."
        yield Finding("access", text, Verdict.BAD, "Set a password (ACL SETUSER or requirepass); put it into the URL.")
    if not address.uses_tls:
        text = "Messages and the password cross the network in the clear."
        yield Finding("encryption", text, Verdict.BAD, "Enable TLS in Redis and write rediss:// in the URL.")
    elif not address.checks_certificate:
        text = "The certificate of Redis is not checked (ssl_cert_reqs=none): anybody could pose as it."
        yield Finding("encryption", text, Verdict.BAD, "Give its authority with ?ssl_ca_certs=… instead.")
