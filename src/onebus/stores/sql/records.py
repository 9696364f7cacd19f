"""What a transaction does to records and to the register of listeners."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
from sqlalchemy import bindparam, delete, update

from onebus.errors import VersionConflict
from onebus.stores.base import Record
from onebus.stores.sql.inserts import insert_if_absent, upsert
from onebus.stores.sql.tables import listeners, records
from onebus.stores.sql.transaction import Transaction

_fields_encoder = msgspec.msgpack.Encoder()
_fields_decoder = msgspec.msgpack.Decoder(dict[str, bytes])

_by_name = records.c.name == bindparam("record_name")
_update = (
    update(records)
    .where(_by_name)
    .values({column: bindparam(f"new_{column}") for column in ("version", "fields", "ttl_ms", "expires_ms")})
)
_delete = delete(records).where(_by_name)
_delete_listener = delete(listeners).where(
    listeners.c.name == bindparam("signal"), listeners.c.client == bindparam("listener")
)


@dataclass(slots=True)
class _Row:
    version: int
    fields: dict[str, bytes]
    ttl_ms: int
    now_ms: int


def get(transaction: Transaction, name: str) -> Record | None:
    row = _find(transaction, name, lock=False)
    return None if row is None else Record(row.version, row.fields)


def put(
    transaction: Transaction,
    name: str,
    fields: Mapping[str, bytes | None],
    expected: int | None,
    ttl_ms: int | None,
) -> int:
    while (row := _find(transaction, name, lock=True)) is None:
        # Whoever else creates it at the same time waits here, and then finds it.
        new = {"name": name, "version": 0, "fields": _fields_encoder.encode({}), "ttl_ms": 0, "expires_ms": 0}
        transaction.execute(insert_if_absent(transaction.dialect_name, records), new)
    _check_version(name, row.version, expected)
    merged = row.fields | dict(fields)
    kept = {key: value for key, value in merged.items() if value is not None}
    ttl = row.ttl_ms if ttl_ms is None else ttl_ms
    # A first version that nobody can guess keeps a deleted record's version from coming back.
    version = (row.version or secrets.randbits(40)) + 1
    transaction.execute(
        _update,
        {
            "record_name": name,
            "new_version": version,
            "new_fields": _fields_encoder.encode(kept),
            "new_ttl_ms": ttl,
            "new_expires_ms": row.now_ms + ttl if ttl else 0,
        },
    )
    return version


def remove(transaction: Transaction, name: str, expected: int | None) -> bool:
    row = _find(transaction, name, lock=True)
    _check_version(name, 0 if row is None else row.version, expected)
    transaction.execute(_delete, {"record_name": name})
    return row is not None


def drop_expired(transaction: Transaction) -> None:
    transaction.execute(transaction.lookups.sweep_records)
    transaction.execute(transaction.lookups.sweep_listeners)


def add_listener(transaction: Transaction, name: str, client: str, ttl_ms: int) -> None:
    transaction.execute(
        upsert(transaction.dialect_name, listeners, "expires_ms"),
        {"name": name, "client": client, "expires_ms": transaction.now_ms() + ttl_ms},
    )


def remove_listener(transaction: Transaction, name: str, client: str) -> None:
    transaction.execute(_delete_listener, {"signal": name, "listener": client})


def count_listeners(transaction: Transaction, name: str) -> int:
    return int(transaction.execute(transaction.lookups.count_listeners, {"signal": name})[0][0])


def _find(transaction: Transaction, name: str, *, lock: bool) -> _Row | None:
    lookups = transaction.lookups
    found = transaction.execute(lookups.lock_record if lock else lookups.find_record, {"record_name": name})
    if not found:
        return None
    version, fields, ttl_ms, expires_ms, now_ms = found[0]
    if 0 < expires_ms <= now_ms:
        if lock:
            transaction.execute(_delete, {"record_name": name})
        return None
    return _Row(version, _fields_decoder.decode(fields), ttl_ms, now_ms)


def _check_version(name: str, version: int, expected: int | None) -> None:
    if expected is not None and expected != version:
        raise VersionConflict(f"The record {name!r} has version {version}, not {expected}. Read it again.")
