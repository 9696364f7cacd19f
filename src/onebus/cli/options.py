"""Options that several commands share."""

import sys
from typing import Annotated, Final

import typer

DEFAULT_TTL_SECONDS: Final = 7 * 24 * 3600.0
"""A queue that a command creates outlives the command by a week, so that the next command finds it."""

Stores = Annotated[
    list[str] | None,
    typer.Option(
        "--store",
        metavar="URL",
        envvar="ONEBUS_STORE",
        show_envvar=True,
        help="Where the messages are kept; several times for several stores.  [default: sqlite:///onebus.db]",
    ),
]
PublishedData = Annotated[
    list[str] | None,
    typer.Argument(metavar="DATA", help="What to publish; without it, or with -, each line of stdin."),
]
DataIsJson = Annotated[bool, typer.Option("--json", help="The data is JSON, and so is what is printed.")]
QueueName = Annotated[str, typer.Argument(metavar="QUEUE", help="The name of the queue.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]
Ttl = Annotated[
    float,
    typer.Option(
        min=0.001,
        metavar="SECONDS",
        help="How long the queue lives when nobody is attached, if this command creates it; 604800 is a week.",
    ),
]


def arguments_or_lines(arguments: list[str] | None, noun: str) -> list[str] | None:
    """Return the arguments of a command, or None if it is to read lines; then a person who has to type is told so."""
    if arguments and arguments != ["-"]:
        return arguments
    if sys.stdin.isatty():
        typer.echo(f"Type one {noun} per line; Ctrl-D ends.", err=True)
    return None
