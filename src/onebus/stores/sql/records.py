"""What a transaction does to records and to the register of listeners."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
from sqlalchemy import bindparam, delete, func, select, update

from onebus.errors import VersionConflict
from onebus.stores.base import Record
from onebus.stores.sql.tables import listeners, records
from onebus.stores.sql.transaction import Transaction

_fields_encoder = msgspec.msgpack.Encoder()
_fields_decoder = msgspec.msgpack.Decoder(dict[str, bytes])

_by_name = records.c.name == bindparam("record_name")


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
        transaction.execute(
            transaction.insert_if_absent(records),
            {"name": name, "version": 0, "fields": _fields_encoder.encode({}), "ttl_ms": 0, "expires_ms": 0},
        )
    _check_version(name, row.version, expected)
    merged = row.fields | dict(fields)
    kept = {key: value for key, value in merged.items() if value is not None}
    ttl = row.ttl_ms if ttl_ms is None else ttl_ms
    # A first version that nobody can guess keeps a deleted record's version from coming back.
    version = (row.version or secrets.randbits(40)) + 1
    transaction.execute(
        update(records).where(_by_name),
        {
            "record_name": name,
            "version": version,
            "fields": _fields_encoder.encode(kept),
            "ttl_ms": ttl,
            "expires_ms": row.now_ms + ttl if ttl else 0,
        },
    )
    return version


def remove(transaction: Transaction, name: str, expected: int | None) -> bool:
    row = _find(transaction, name, lock=True)
    _check_version(name, 0 if row is None else row.version, expected)
    transaction.execute(delete(records).where(_by_name), {"record_name": name})
    return row is not None


def drop_expired(transaction: Transaction) -> None:
    for table in (records, listeners):
        transaction.execute(delete(table).where(table.c.expires_ms > 0, table.c.expires_ms <= transaction.now))


def add_listener(transaction: Transaction, name: str, client: str, ttl_ms: int) -> None:
    transaction.execute(
        transaction.upsert(listeners, "expires_ms"),
        {"name": name, "client": client, "expires_ms": transaction.now_ms() + ttl_ms},
    )


def remove_listener(transaction: Transaction, name: str, client: str) -> None:
    transaction.execute(delete(listeners).where(listeners.c.name == name, listeners.c.client == client))


def count_listeners(transaction: Transaction, name: str) -> int:
    statement = select(func.count()).where(listeners.c.name == name, listeners.c.expires_ms > transaction.now)
    return int(transaction.execute(statement).scalar_one())


def _find(transaction: Transaction, name: str, *, lock: bool) -> _Row | None:
    statement = select(
        records.c.version, records.c.fields, records.c.ttl_ms, records.c.expires_ms, transaction.now
    ).where(_by_name)
    if lock:
        statement = statement.with_for_update()
    found = transaction.execute(statement, {"record_name": name}).one_or_none()
    if found is None:
        return None
    version, fields, ttl_ms, expires_ms, now_ms = found
    if 0 < expires_ms <= now_ms:
        if lock:
            transaction.execute(delete(records).where(_by_name), {"record_name": name})
        return None
    return _Row(version, _fields_decoder.decode(fields), ttl_ms, now_ms)


def _check_version(name: str, version: int, expected: int | None) -> None:
    if expected is not None and expected != version:
        raise VersionConflict(f"The record {name!r} has version {version}, not {expected}. Read it again.")
