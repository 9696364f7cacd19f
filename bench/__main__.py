"""The command line: one command per suite."""

import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from bench.busmq import CYCLE_SECONDS, CYCLES, QUICK_CYCLES, BusmqSuite, Plan
from bench.log import LogSuite
from bench.places import PLACES
from bench.processes import JobFailed
from bench.progress import Progress
from bench.report import Report, show_cycles, show_table, summary_of
from bench.scale import FULL, QUICK, Scale
from bench.spark.suite import FULL as SPARK_FULL
from bench.spark.suite import QUICK as SPARK_QUICK
from bench.spark.suite import Plan as SparkPlan
from bench.spark.suite import SparkSuite
from bench.topics.suite import QUICK as TOPICS_QUICK
from bench.topics.suite import Plan as TopicsPlan
from bench.topics.suite import TopicsSuite
from bench.web.suite import QUICK as WEB_QUICK
from bench.web.suite import Plan as WebPlan
from bench.web.suite import WebSuite
from tests.services import MissingService, ServiceFailed

RESULTS = Path(__file__).parent / "results"
PIPED_COLUMNS = 130

Suite = BusmqSuite | SparkSuite | TopicsSuite | WebSuite

Only = Annotated[str, typer.Option("--only", help="Measure only the scenarios with this in their names.")]

app = typer.Typer(help=__doc__, no_args_is_help=True, pretty_exceptions_enable=False)


@app.callback()
def bench() -> None:
    """Measure onebus beside the raw ceiling of its servers and the ordinary ways to use them."""
    # Servers and children are stopped on the way out, also when a supervisor ends this.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


@app.command("log")
def log_command(
    stores: Annotated[str, typer.Option(help="The stores to measure, separated by commas.")] = ",".join(PLACES),
    messages: Annotated[int, typer.Option(min=1000, help="Messages per measurement; all else scales with it.")] = FULL,
    quick: Annotated[bool, typer.Option("--quick", help=f"The same as --messages {QUICK}.")] = False,
    size: Annotated[str, typer.Option(help="Bytes per message, separated by commas.")] = "100,1024",
    json: Annotated[Path | None, typer.Option(help="The file to write; else one in bench/results.")] = None,
) -> None:
    """Stores of the log: rates, latencies, memory, and the cost of length."""
    names = _chosen(stores)
    console = _console()
    with Report(json or _new_file("log")) as report, Progress(console) as progress:
        suite = LogSuite(Scale(QUICK if quick else messages), [int(each) for each in size.split(",")], report, progress)
        failures = _run_all(suite, names, console)
        seconds = progress.seconds
    for name in names:
        show_table(console, name, [one for one in report.measurements if one.store == name])
    _close(console, report, failures, seconds)


@app.command("busmq")
def busmq_command(
    cycles: Annotated[int, typer.Option(min=1, help="Report cycles; all else scales with it.")] = CYCLES,
    quick: Annotated[bool, typer.Option("--quick", help=f"The same as --cycles {QUICK_CYCLES}.")] = False,
    only: Only = "",
    seconds: Annotated[float, typer.Option(min=0.1, help="The length of a cycle.")] = CYCLE_SECONDS,
    json: Annotated[Path | None, typer.Option(help="The file to write; else one in bench/results.")] = None,
) -> None:
    """Queues beside node-busmq: both on the same Redis, in turn."""
    console = _console()
    with Report(json or _new_file("busmq")) as report, Progress(console) as progress:
        suite = BusmqSuite(Plan(QUICK_CYCLES if quick else cycles, seconds), report, progress)
        failures = _run_each(suite, only, console)
        taken = progress.seconds
    show_cycles(console, report.cycles)
    show_table(console, "queues beside busmq", report.measurements)
    _close(console, report, failures, taken)


@app.command("web")
def web_command(
    quick: Annotated[bool, typer.Option("--quick", help="Fewer clients, messages and rounds.")] = False,
    only: Only = "",
    json: Annotated[Path | None, typer.Option(help="The file to write; else one in bench/results.")] = None,
) -> None:
    """The web door beside servers that do nothing else."""
    _measure("web", "the web door", partial(WebSuite, WEB_QUICK if quick else WebPlan()), only, json)


@app.command("topics")
def topics_command(
    quick: Annotated[bool, typer.Option("--quick", help="Fewer messages, less time.")] = False,
    only: Only = "",
    json: Annotated[Path | None, typer.Option(help="The file to write; else one in bench/results.")] = None,
) -> None:
    """Topics and the broker, beside Redis Streams, NATS JetStream and bare sockets."""
    _measure(
        "topics", "topics and the broker", partial(TopicsSuite, TOPICS_QUICK if quick else TopicsPlan()), only, json
    )


@app.command("spark")
def spark_command(
    messages: Annotated[int, typer.Option(min=1000, help="Messages in a topic; all else scales with it.")] = SPARK_FULL,
    quick: Annotated[bool, typer.Option("--quick", help=f"The same as --messages {SPARK_QUICK}.")] = False,
    only: Only = "",
    json: Annotated[Path | None, typer.Option(help="The file to write; else one in bench/results.")] = None,
) -> None:
    """Spark on the bus, beside row-by-row Python and Spark's own Parquet."""
    _measure("spark", "Spark", partial(SparkSuite, SparkPlan(SPARK_QUICK if quick else messages)), only, json)


def _chosen(stores: str) -> list[str]:
    names = [name.strip() for name in stores.split(",")]
    unknown = [name for name in names if name not in PLACES]
    if unknown:
        raise typer.BadParameter(f"{', '.join(unknown)}: known are {', '.join(PLACES)}", param_hint="--stores")
    return names


def _console() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=PIPED_COLUMNS)


def _measure(name: str, title: str, suite: Callable[[Report, Progress], Suite], only: str, json: Path | None) -> None:
    """Run the scenarios of a suite, and show and write what it measured."""
    console = _console()
    with Report(json or _new_file(name)) as report, Progress(console) as progress:
        failures = _run_each(suite(report, progress), only, console)
        taken = progress.seconds
    show_table(console, title, report.measurements)
    _close(console, report, failures, taken)


def _new_file(name: str) -> Path:
    return RESULTS / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}.jsonl"


def _run_all(suite: LogSuite, names: list[str], console: Console) -> list[str]:
    """Measure each store and return the names of those that could not be."""
    failures: list[str] = []
    for name in names:
        try:
            suite.run(name)
        except (JobFailed, MissingService, ServiceFailed) as error:
            console.print(f"{name} could not be measured: {error}", markup=False, soft_wrap=True)
            failures.append(name)
    return failures


def _run_each(suite: Suite, only: str, console: Console) -> list[str]:
    """Measure each scenario that is wanted and return the names of those that could not be."""
    failures: list[str] = []
    try:
        with suite.opened() as scenarios:
            wanted = {name: measure for name, measure in scenarios.items() if only in name}
            if not wanted:
                raise typer.BadParameter(f"{only}: there are {', '.join(scenarios)}", param_hint="--only")
            for name, measure in wanted.items():
                try:
                    measure()
                except JobFailed as error:
                    console.print(f"{name} could not be measured: {error}", markup=False, soft_wrap=True)
                    failures.append(name)
    except (MissingService, ServiceFailed) as error:
        console.print(f"nothing could be measured: {error}", markup=False, soft_wrap=True)
        failures.append("all")
    return failures


def _close(console: Console, report: Report, failures: list[str], seconds: float) -> None:
    console.print(f"{len(report.measurements)} measurements in {seconds:.0f} s, written to {report.file}")
    for one in report.missed:
        console.print(f"missed: {summary_of(one)}", markup=False)
    total = report.met_count + len(report.missed)
    verdict = "all met" if not report.missed else f"{len(report.missed)} MISSED"
    console.print(
        f"{total} targets: {report.met_count} met, {verdict}" if report.missed else f"{total} targets: {verdict}"
    )
    if failures:
        console.print(f"NOT MEASURED: {', '.join(failures)}")
        raise typer.Exit(1)


if __name__ == "__main__":
    app()
