"""`onebus doctor`: is this store fit to carry messages?"""

import sys
from shutil import get_terminal_size
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from onebus.cli.output import one_line, print_error, redacted
from onebus.errors import BusError

if TYPE_CHECKING:
    from onebus.cli.examination import Examination, Latency

_COLORS: Final = {"good": "green", "info": "blue", "bad": "red"}
_MARGIN: Final = 19
"""Where the text of a line begins: after the verdict and the topic."""
_NARROWEST: Final = 60
_WIDEST: Final = 120


def doctor(
    urls: Annotated[list[str], typer.Argument(metavar="URL...", help="Where the store is; several for a sharded one.")],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Say what a store is, how safe it keeps messages, how fast it is, and what to change.

    Opens the store as the bus does, which creates its tables or its file if they are missing, and appends some
    dozens of messages to a scratch log that is dropped in the end.

    Exit code: 0 if every store can be used and nothing about it is bad; 1 if one cannot be reached or opened,
    or has a setting that is bad.
    """
    reports = [_report(url, quiet=as_json) for url in urls]
    healthy = all(report["healthy"] for report in reports)
    if as_json:
        _print_json({"healthy": healthy, "stores": reports})
    elif healthy:
        typer.echo("Nothing to change.")
    raise typer.Exit(0 if healthy else 1)


def _report(url: str, *, quiet: bool) -> dict[str, Any]:
    import asyncio

    from onebus.cli.examination import examine

    shown = redacted(url)
    if not quiet:
        typer.secho(shown, bold=True)
    try:
        examination = asyncio.run(examine(url))
    except BusError as error:
        if not quiet:
            print_error(error)
        return {"url": shown, "healthy": False, "error": {"code": error.code, "text": one_line(error)}}
    if not quiet:
        _print_examination(examination)
    return {"url": shown, "healthy": not _is_bad(examination), "examination": examination}


def _is_bad(examination: "Examination") -> bool:
    return any(finding.verdict.value == "bad" for finding in examination.inspection.findings)


def _print_json(report: dict[str, Any]) -> None:
    import msgspec

    typer.echo(msgspec.json.format(msgspec.json.encode(report), indent=2).decode())


def _print_examination(examination: "Examination") -> None:
    inspection = examination.inspection
    _print_line("good", "store", f"{inspection.product} {inspection.version}")
    for finding in inspection.findings:
        _print_line(finding.verdict.value, finding.topic, finding.text)
    _print_line("info", "append", f"{_words(examination.append)}, one message of 100 bytes at a time.")
    _print_line("info", "wake-up", _wake_up(examination))
    remedies = [finding for finding in inspection.findings if finding.remedy]
    if remedies:
        typer.secho("What to change:", bold=True)
    for finding in remedies:
        _print_line("", finding.topic, finding.remedy)


def _wake_up(examination: "Examination") -> str:
    missed = examination.missed_wake_ups
    lost = f"{missed} of {WAKE_UP_WORD} did not come within a second" if missed else ""
    return lost


def _words(latency: "Latency") -> str:
    return f"p50 {latency.p50_ms:.2f} ms, p99 {latency.p99_ms:.2f} ms over {latency.samples} tries"
