"""The tables as SQLAlchemy sees them; the migrations say what they are for."""

from sqlalchemy import BigInteger, Boolean, Column, LargeBinary, MetaData, String, Table


def text_of(value: str | bytes) -> str:
    """Return a name as text: MySQL keeps names as bytes, since only those are compared byte by byte."""
    return value.decode() if isinstance(value, bytes) else value


metadata = MetaData()

logs = Table(
    "onebus_log",
    metadata,
    Column("id", BigInteger, primary_key=True),
    Column("name", String, nullable=False),
    Column("epoch", String, nullable=False),
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
    Column("twin_log", String),
    Column("twin_first_id", BigInteger),
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
    Column("owner", String, nullable=False),
)

marks = Table(
    "onebus_mark",
    metadata,
    Column("log_id", BigInteger, primary_key=True, autoincrement=False),
    Column("source", String, primary_key=True),
    Column("number", BigInteger, nullable=False),
    Column("first_id", BigInteger, nullable=False),
)

records = Table(
    "onebus_record",
    metadata,
    Column("name", String, primary_key=True),
    Column("version", BigInteger, nullable=False),
    Column("fields", LargeBinary, nullable=False),
    Column("ttl_ms", BigInteger, nullable=False),
    Column("expires_ms", BigInteger, nullable=False),
)

listeners = Table(
    "onebus_listener",
    metadata,
    Column("name", String, primary_key=True),
    Column("client", String, primary_key=True),
    Column("expires_ms", BigInteger, nullable=False),
)

bells = Table(
    "onebus_bell",
    metadata,
    Column("address", String, primary_key=True),
    Column("secret", LargeBinary, nullable=False),
    Column("expires_ms", BigInteger, nullable=False),
)
