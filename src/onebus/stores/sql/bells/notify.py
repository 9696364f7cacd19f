"""The bell of PostgreSQL: NOTIFY inside the transaction, LISTEN on a connection of its own."""

import asyncio
from base64 import b64decode, b64encode
from contextlib import suppress

import psycopg
from sqlalchemy import URL, bindparam, func, select

from onebus.errors import StoreUnavailable
from onebus.stores.news import News, PackedNews
from onebus.stores.sql.bells.base import Bell, Heard, Lost, RunTransaction
from onebus.stores.sql.transaction import Transaction

_notify = select(func.pg_notify(bindparam("channel"), bindparam("payload")))


class NotifyBell(Bell):
    def __init__(self, url: URL, channel: str, patience_seconds: int) -> None:
        self._url = url
        self._channel = channel
        self._patience_seconds = patience_seconds
        self._connection: psycopg.AsyncConnection | None = None
        self._hearing: asyncio.Task[None] | None = None

    async def open(self, heard: Heard, lost: Lost, run: RunTransaction) -> None:
        await self.close()
        try:
            self._connection = await psycopg.AsyncConnection.connect(
                self._url.render_as_string(hide_password=False),
                autocommit=True,
                connect_timeout=self._patience_seconds,
                tcp_user_timeout=self._patience_seconds * 1000,
            )
            await self._connection.execute(f"LISTEN {self._channel}")
        except psycopg.OperationalError as error:
            raise StoreUnavailable(f"PostgreSQL gives no connection to listen on: {error}") from error
        self._hearing = asyncio.create_task(self._hear(self._connection, heard, lost), name="onebus-listen")

    async def close(self) -> None:
        if self._hearing is not None:
            self._hearing.cancel()
            await asyncio.gather(self._hearing, return_exceptions=True)
            self._hearing = None
        if self._connection is not None:
            with suppress(psycopg.Error):
                await self._connection.close()
            self._connection = None

    def prepare(self, transaction: Transaction) -> None:
        payloads = [_payload(log, news) for log, news in transaction.grown.items()]
        transaction.perform(_notify, [{"channel": self._channel, "payload": payload} for payload in payloads])

    async def _hear(self, connection: psycopg.AsyncConnection, heard: Heard, lost: Lost) -> None:
        try:
            async for notification in connection.notifies():
                name, _, packed = notification.payload.partition("\n")
                heard({name: PackedNews(b64decode(packed)) if packed else None})
        except psycopg.Error as error:
            lost(error)


def _payload(log: str, news: News | None) -> str:
    """Return what a notification says: the name of the log, and the news as text where there are any."""
    packed = None if news is None else news.pack()
    return log if packed is None else f"{log}\n{b64encode(packed).decode()}"
