"""`onebus push`: arguments or lines into a queue."""

from typing import TYPE_CHECKING, Annotated

import typer

from onebus.cli.options import DEFAULT_TTL_SECONDS, QueueName, Stores, Ttl, arguments_or_lines

if TYPE_CHECKING:
    from collections.abc import Sequence


def push(
    queue: QueueName,
    messages: Annotated[
        list[str] | None,
        typer.Argument(metavar="MESSAGE", help="What to push; without it, or with -, each line of stdin."),
    ] = None,
    *,
    stores: Stores = None,
    as_json: Annotated[bool, typer.Option("--json", help="Each message is JSON; empty lines are skipped.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at the first message that cannot be pushed.")] = False,
    delay: Annotated[float, typer.Option(min=0, metavar="SECONDS", help="Let the messages wait so long.")] = 0.0,
    key: Annotated[str | None, typer.Option(help="The key of every message.")] = None,
    header: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A header of every message; may be repeated.")
    ] = None,
    ttl: Ttl = DEFAULT_TTL_SECONDS,
) -> None:
    """Push messages to a queue, in order.

    Messages are the arguments, or, if there are none, the lines of stdin, as they come. What is not UTF-8 is pushed
    as bytes. With --json each is parsed: a bad one is reported with its number and not pushed, the others are,
    and the exit code is 1 in the end; --strict stops there instead. How many were pushed is told on stderr.

    A queue that does not exist is created, and lives for a week after its last use, or as --ttl says. A queue
    that exists keeps its own time to live.

    Example: seq 1000 | onebus push jobs
    """
    from onebus.cli.pushing import PushOptions, push_lines
    from onebus.cli.session import run

    options = PushOptions(as_json=as_json, strict=strict, delay=delay, key=key, headers=_headers(header or ()), ttl=ttl)
    if not run(push_lines(stores, queue, arguments_or_lines(messages, "message"), options)):
        raise typer.Exit(1)


def _headers(given: "Sequence[str]") -> dict[str, str]:
    headers: dict[str, str] = {}
    for text in given:
        name, separator, value = text.partition("=")
        if not name or not separator:
            raise typer.BadParameter(f"{text!r} is not NAME=VALUE.", param_hint="--header")
        headers[name] = value
    return headers
