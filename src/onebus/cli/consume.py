"""`onebus consume`: messages out of a queue, one per line."""

from typing import TYPE_CHECKING, Annotated

import typer

from onebus.cli.options import DEFAULT_TTL_SECONDS, AsJson, QueueName, Stores, Ttl

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onebus.cli.stdout import Stdout
    from onebus.message import Message
    from onebus.objects.queue import Queue


def consume(
    queue: QueueName,
    *,
    stores: Stores = None,
    most: Annotated[int | None, typer.Option("--max", min=1, metavar="N", help="End after N messages.")] = None,
    reliable: Annotated[
        bool, typer.Option("--reliable", help="Take a message only when its line is written: at least once.")
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow/--no-follow", help="Wait for more, or end when the queue is empty.")
    ] = True,
    timeout: Annotated[
        float | None, typer.Option(min=0.001, metavar="SECONDS", help="End when no message comes for so long.")
    ] = None,
    as_json: AsJson = False,
    ttl: Ttl = DEFAULT_TTL_SECONDS,
) -> None:
    """Take messages out of a queue and print them, one per line, as they come.

    Text and bytes are printed as they were pushed, JSON compactly. With --json each line is an object with id,
    data, timestamp, attempts, key and headers; bytes that are not UTF-8 are base64 there, and "encoding" says so.

    Ctrl-C, SIGTERM and a reader that ends, as in `onebus consume jobs | head -3`, end it cleanly: what was not
    printed goes back to the queue. Only if it is killed, or the power fails, is what it had fetched lost; with
    --reliable that is delivered again instead, and a line may then come twice. A queue that does not exist is waited
    for. The exit code is 130 after Ctrl-C and 143 after SIGTERM.

    Example: onebus consume jobs --reliable --json | jq .data
    """
    from onebus.cli.session import run

    run(_consume(stores, queue, ttl, as_json=as_json, timeout=timeout, most=most, reliable=reliable, follow=follow))


async def _consume(
    stores: "Sequence[str] | None",
    name: str,
    ttl: float,
    *,
    as_json: bool,
    timeout: float | None,
    most: int | None,
    reliable: bool,
    follow: bool,
) -> None:
    import asyncio
    from contextlib import aclosing, suppress

    from onebus.cli.session import attached, note, open_bus
    from onebus.cli.shown import message_line
    from onebus.cli.stdout import Stdout

    stdout = Stdout()
    loop = asyncio.get_running_loop()
    async with open_bus(stores) as bus, attached(bus, name, ttl=ttl) as queue:
        queue.on("closed", lambda: note(f"The queue {name!r} was closed."))
        with suppress(TimeoutError):
            async with (
                asyncio.timeout(timeout) as patience,
                aclosing(queue.consume(max=most, reliable=reliable, wait=follow)) as messages,
            ):
                async for message in messages:
                    if timeout is not None:
                        patience.reschedule(None)
                    await _print(queue, message, message_line(message, as_json=as_json), stdout)
                    if timeout is not None:
                        patience.reschedule(loop.time() + timeout)


async def _print(queue: "Queue", message: "Message", line: bytes, stdout: "Stdout") -> None:
    """Print a message, and acknowledge it, or put it back when nobody has got it."""
    try:
        await stdout.write(line)
    except BaseException:
        if stdout.is_out:
            await message.ack()
        else:
            queue.put_back(message)
        raise
    await message.ack()
