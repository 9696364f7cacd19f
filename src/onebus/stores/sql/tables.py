"""The tables as SQLAlchemy sees them; the migrations say what they are for."""

from typing import Any

from sqlalchemy import BigInteger, Boolean, Column, Dialect, LargeBinary, MetaData, String, Table, TypeDecorator
from sqlalchemy.dialects.mysql import VARBINARY
from sqlalchemy.types import TypeEngine


class Name(TypeDecorator[str]):
    """Text that is compared byte by byte: on MySQL it has to be bytes to be so."""

    impl = String
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return VARBINARY(300) if dialect.name in ("mysql", "mariadb") else String()

    def process_bind_param(self, value: str | None, dialect: Dialect) -> Any:
        return value.encode() if value is not None and dialect.name in ("mysql", "mariadb") else value

    def process_result_value(self, value: Any, dialect: Dialect) -> str | None:
        return value.decode() if isinstance(value, bytes) else value


metadata = MetaData()

logs = Table(
    "onebus_log",
    metadata,
    Column("id", BigInteger, primary_key=True),
    Column("name", Name, nullable=False),
    Column("epoch", String(40), nullable=False),
    Column("first_id", BigInteger, nullable=False),
    Column("last_id", BigInteger, nullable=False),
    Column("head", BigInteger, nullable=False),
    Column("fence", BigInteger, nullable=False),
    Column("bytes_appended", BigInteger, nullable=False),
    Column("ttl_ms", BigInteger, nullable=False),
    Column("expires_ms", BigInteger, nullable=False),
)

batches = Table(
    "onebus_batch",
    metadata,
    Column("log_id", BigInteger, primary_key=True, autoincrement=False),
    Column("last_id", BigInteger, primary_key=True, autoincrement=False),
    Column("count", BigInteger, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("end_byte", BigInteger, nullable=False),
    Column("appended_ms", BigInteger, nullable=False),
    Column("origin_log", Name),
    Column("origin_first_id", BigInteger),
    Column("blob", LargeBinary, nullable=False),
)

holds = Table(
    "onebus_hold",
    metadata,
    Column("log_id", BigInteger, primary_key=True, autoincrement=False),
    Column("first_id", BigInteger, primary_key=True, autoincrement=False),
    Column("last_id", BigInteger, nullable=False),
    Column("fence", BigInteger, nullable=False),
    Column("due_ms", BigInteger, nullable=False),
    Column("attempts", BigInteger, nullable=False),
    Column("redeliver", Boolean, nullable=False),
    Column("owner", Name, nullable=False),
)

records = Table(
    "onebus_record",
    metadata,
    Column("name", Name, primary_key=True),
    Column("version", BigInteger, nullable=False),
    Column("fields", LargeBinary, nullable=False),
    Column("ttl_ms", BigInteger, nullable=False),
    Column("expires_ms", BigInteger, nullable=False),
)

listeners = Table(
    "onebus_listener",
    metadata,
    Column("name", Name, primary_key=True),
    Column("client", String(40), primary_key=True),
    Column("expires_ms", BigInteger, nullable=False),
)

bells = Table(
    "onebus_bell",
    metadata,
    Column("address", String(80), primary_key=True),
    Column("expires_ms", BigInteger, nullable=False),
)
