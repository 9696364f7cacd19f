"""Options that several commands share."""

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
