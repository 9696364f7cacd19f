"""The `onebus` command: one module per subcommand, each loading what it needs only when it runs."""

import typer

from onebus.cli import broker, consume, dead, doctor, feeds, look, pipeline, push, serve, signals, topics
from onebus.cli.output import print_error
from onebus.errors import BusError

__all__ = ["main"]

app = typer.Typer(
    help="One message bus from the browser tab to the Spark job.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command()(doctor.doctor)
app.command()(serve.serve)
app.command()(broker.broker)
app.command()(push.push)
app.command()(consume.consume)
app.command()(look.tail)
app.command()(look.peek)
app.command()(look.count)
app.command()(look.queues)
app.command()(dead.dead)
app.command()(dead.redrive)
app.command()(feeds.publish)
app.command()(feeds.subscribe)
app.command()(signals.publish_signal)
app.command()(signals.listen)
app.add_typer(topics.app, name="topic")
app.add_typer(pipeline.app, name="pipeline")


def _show_version(wanted: bool) -> None:
    if wanted:
        from onebus import __version__

        typer.echo(f"onebus {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    *,
    _version: bool = typer.Option(
        False, "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
    ),
) -> None:
    return


def main() -> None:
    """Run the command line. An error made by onebus is one line on stderr and exit code 1, Ctrl-C is 130."""
    try:
        app()
    except BusError as error:
        print_error(error)
        raise SystemExit(1) from None
