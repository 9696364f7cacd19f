"""`onebus doctor`: is this store fit to carry messages?"""

import sys
from dataclasses import dataclass
from shutil import get_terminal_size
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated, Final

import typer

from onebus.cli.output import one_line, print_error, redacted
from onebus.errors import BusError

if TYPE_CHECKING:
    from onebus.cli.examination import Examination, Latency
    from onebus.stores.base import Finding

_COLORS: Final = {"good": "green", "bad": "red"}
_INDENT: Final = " " * 22
"""What stands before the text of a finding: its verdict and its topic."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a store could not be examined."""

    code: str
    text: str


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome for one store: an examination, or an error."""

    url: str
    healthy: bool
    examination: "Examination | None" = None
    error: Failure | None = None


def doctor(
    urls: Annotated[list[str], typer.Argument(metavar="URL", help="Where the store is; several if it is sharded.")],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
) -> None:
    """Say what a store is, how safe it keeps messages, how fast it is, and what to change.

    It opens the store as the bus does, which creates the tables or the file if they are missing, and appends
    some dozens of messages to a scratch log, which it drops in the end.

    The exit code is 0 if every store can be used and nothing about it is bad. It is 1 if a store cannot be
    used (it is away, it refuses the password, the URL is wrong), or if one of its settings is bad.
    """
    reports = [_report(url, show=not as_json) for url in urls]
    healthy = all(report.healthy for report in reports)
    if as_json:
        _print_json(reports, healthy=healthy)
    raise typer.Exit(0 if healthy else 1)


def _report(url: str, *, show: bool) -> Report:
    import asyncio

    from onebus.cli.examination import examine

    shown = redacted(url)
    if show:
        typer.secho(shown, bold=True)
    try:
        examination = asyncio.run(examine(url))
    except BusError as error:
        if show:
            print_error(error)
        return Report(shown, False, error=Failure(error.code, one_line(error)))
    if show:
        _print_examination(examination)
    return Report(shown, examination.is_healthy, examination)


def _print_json(reports: list[Report], *, healthy: bool) -> None:
    import msgspec

    text = msgspec.json.encode({"healthy": healthy, "stores": reports})
    typer.echo(msgspec.json.format(text, indent=2).decode())


def _print_examination(examination: "Examination") -> None:
    _print_line("", "store", f"{examination.product} {examination.version}")
    for finding in examination.findings:
        _print_line(finding.verdict.value, finding.topic, finding.text)
    _print_line("", "append", f"{_words(examination.append)}: single messages of 100 bytes, each one acknowledged.")
    _print_line("", "reader woken", _wake_up_words(examination))
    bad = [finding for finding in examination.findings if finding.verdict.value == "bad"]
    other = [finding for finding in examination.findings if finding.remedy and finding not in bad]
    if other:
        _print_remedies("to consider", other)
    _print_remedies("to change", bad)


def _print_remedies(title: str, findings: "list[Finding]") -> None:
    _print_line("", title, "" if findings else "nothing")
    for finding in findings:
        _print_line("", f"  {finding.topic}", finding.remedy)


def _print_line(verdict: str, topic: str, text: str) -> None:
    mark = typer.style(f"{verdict:4}", fg=_COLORS.get(verdict))
    first, *others = _lines(redacted(text))
    typer.echo(f"  {mark}  {topic:13} {first}".rstrip())
    for line in others:
        typer.echo(_INDENT + line)


def _lines(text: str) -> list[str]:
    if not sys.stdout.isatty():
        return [text]
    return wrap(text, max(get_terminal_size().columns - len(_INDENT), 40), break_on_hyphens=False) or [""]


def _wake_up_words(examination: "Examination") -> str:
    latency, missed = examination.wake_up, examination.missed_wake_ups
    if not examination.is_shared:
        return "Not measured: only the client that wrote the messages sees them."
    if latency is None:
        return "No wake-up came within a second: readers poll, and are late by up to a second."
    lost = f" {missed} more did not come within a second." if missed else ""
    return f"{_words(latency)}: in another client, counted from the call of append.{lost}"


def _words(latency: "Latency") -> str:
    return f"p50 {latency.p50_ms:.2f} ms, p99 {latency.p99_ms:.2f} ms in {latency.samples} tries"
