"""`onebus pipeline`: the jobs of the data pipeline, which run on Spark."""

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onebus.cli.options import Stores

if TYPE_CHECKING:
    from rich.table import Table

    from onebus.spark.jobs.findings import Audit

app = typer.Typer(help="The data pipeline: jobs that run on Spark.", no_args_is_help=True)

LakePath = Annotated[str, typer.Argument(metavar="LAKE", help="The folder or URL of the lake.")]
Master = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Where Spark runs, such as spark://host:7077.  [default: this machine]"),
]
Conf = Annotated[
    list[str] | None, typer.Option(metavar="NAME=VALUE", help="A setting of Spark; may be given several times.")
]
Once = Annotated[
    bool, typer.Option("--once/--continuous", help="End when all is done that is there now, or go on until Ctrl-C.")
]
Topics = Annotated[
    list[str] | None,
    typer.Option("--topic", metavar="NAME", help="A topic; several times for several, and * stands for any letters."),
]
Feeds = Annotated[list[str] | None, typer.Option("--feed", metavar="NAME", help="A channel; as with topics.")]
DeadLetters = Annotated[
    list[str] | None, typer.Option("--dead", metavar="QUEUE", help="The dead letters of a queue; as with topics.")
]

Checkpoint = Annotated[
    str | None,
    typer.Option(metavar="FOLDER", help="Where the job keeps how far it has come.  [default: in the lake]"),
]


@app.command()
def archive(
    lake: LakePath,
    *,
    stores: Stores = None,
    topics: Topics = None,
    feeds: Feeds = None,
    dead: DeadLetters = None,
    once: Once = True,
    every: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="With --continuous: how often to look for what is new.")
    ] = 5.0,
    rows: Annotated[int, typer.Option(min=1, metavar="N", help="How many messages a batch has at most.")] = 1_000_000,
    then_trim: Annotated[
        bool, typer.Option("--then-trim", help="Let topics forget what is in the lake; see the next two.")
    ] = False,
    keep_for: Annotated[
        list[str] | None,
        typer.Option(metavar="GROUP", help="... but keep what this group has not read; may be given several times."),
    ] = None,
    even_unread: Annotated[bool, typer.Option("--even-unread", help="... whoever has read it or not.")] = False,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Write messages to a lake of Parquet files, each once. A lake that exists is continued.

    Example: onebus pipeline archive /srv/lake --topic clicks --topic 'orders-*'
    """
    from onebus.cli.jobs import Job

    with Job("archive", stores=stores, master=master, conf=conf) as job:
        from onebus.spark.jobs import archive

        done = archive(
            job.spark,
            lake,
            topics=topics or (),
            feeds=feeds or (),
            dead_letters=dead or (),
            once=once,
            every_seconds=every,
            rows_at_once=rows,
            then_trim=then_trim,
            keep_for=keep_for or (),
            even_unread=even_unread,
            stop=job.stop,
            on_batch=lambda batch: job.progress(f"archive: batch {batch.number}, {batch.rows} messages"),
        )
        job.say(f"archived {done.rows} messages in {done.batches} batches")
        if done.forgotten:
            job.say(f"{done.forgotten} messages were forgotten before they were archived; see onebus pipeline audit")
        if then_trim:
            job.say(f"the store has forgotten {done.trimmed} messages that are in the lake")


@app.command()
def audit(
    lake: LakePath,
    *,
    stores: Stores = None,
    topics: Topics = None,
    feeds: Feeds = None,
    dead: DeadLetters = None,
    html: Annotated[str | None, typer.Option(metavar="FILE", help="Write the report to this file, as HTML.")] = None,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Check that every message is in the lake or in the store, once. Exit code 1 if one is missing or doubled.

    Example: onebus pipeline audit /srv/lake --html audit.html
    """
    from onebus.cli.jobs import Job

    with Job("audit", stores=stores, master=master, conf=conf) as job:
        from onebus.spark.jobs import audit
        from onebus.spark.jobs.report import html_report

        found = audit(job.spark, lake, topics=topics or (), feeds=feeds or (), dead_letters=dead or ())
        job.out.print(_table(found))
        for problem in found.problems:
            job.out.print(problem, markup=False, highlight=False)
        job.out.print(f"{found.missing} missing, {found.doubled} duplicated", markup=False, highlight=False)
        if html is not None:
            Path(html).write_text(html_report(found))
            job.say(f"the report is in {html}")
    if not found.is_clean:
        raise typer.Exit(1)


@app.command()
def replay(
    lake: LakePath,
    source: Annotated[str, typer.Argument(metavar="NAME", help="Whose messages: a topic, channel or queue.")],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="The topic, channel or queue that gets them.")],
    *,
    replay_id: Annotated[
        str, typer.Option("--id", metavar="ID", help="A name for this replay; the same one goes on where it stopped.")
    ],
    stores: Stores = None,
    kind: Annotated[str, typer.Option(metavar="KIND", help="What NAME is: topic, feed or dead.")] = "topic",
    to: Annotated[str, typer.Option(metavar="KIND", help="What TARGET is: topic, feed or queue.")] = "topic",
    since: Annotated[
        datetime | None, typer.Option(metavar="TIME", help="Only what was published then or later; UTC.")
    ] = None,
    until: Annotated[datetime | None, typer.Option(metavar="TIME", help="Only what was published before; UTC.")] = None,
    where: Annotated[str, typer.Option(metavar="SQL", help="Only rows of the lake for which this is true.")] = "",
    rate: Annotated[float | None, typer.Option(metavar="N", help="At most so many messages a second.")] = None,
    value: Annotated[str, typer.Option(metavar="FORM", help="What consumers get: bytes, text or json.")] = "bytes",
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Write messages of a lake to the bus again, in their order, each once.

    Example: onebus pipeline replay /srv/lake clicks clicks-again --id monday --since 2026-11-16 --rate 1000
    """
    from datetime import UTC

    from onebus.cli.jobs import Job

    with Job("replay", stores=stores, master=master, conf=conf) as job:
        from onebus.spark.jobs import replay

        done = replay(
            job.spark,
            lake,
            source,
            target,
            replay_id=replay_id,
            kind=kind,
            to=to,
            since=None if since is None else since.replace(tzinfo=UTC),
            until=None if until is None else until.replace(tzinfo=UTC),
            where=where,
            rate=rate,
            value=value,
            stop=job.stop,
            on_batch=lambda number, rows: job.progress(f"replay: batch {number}, {rows} messages"),
        )
        job.say(f"replayed {done.rows} messages; {done.known} had been replayed before")


@app.command()
def rollup(
    lake: LakePath,
    *,
    stores: Stores = None,
    topics: Topics = None,
    feeds: Feeds = None,
    window: Annotated[str, typer.Option(metavar="TIME", help="How long a window is.")] = "1 minute",
    watermark: Annotated[
        str, typer.Option(metavar="TIME", help="How much later than the newest a message may still be counted.")
    ] = "1 minute",
    publish_to: Annotated[
        str | None, typer.Option(metavar="CHANNEL", help="Where the windows are published, too; '' for nowhere.")
    ] = "/rollup",
    checkpoint: Checkpoint = None,
    once: Once = True,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Count messages, bytes and keys, and how fresh they were, by window of time; each window once.

    The windows are in the table `rollup` of the lake. A window is complete when a message has come that is newer than
    its end by more than the watermark; until then it waits in the checkpoint, also from one run to the next.

    Example: onebus pipeline rollup /srv/lake --topic clicks --window '10 seconds' --continuous
    """
    from onebus.cli.jobs import Job

    with Job("rollup", stores=stores, master=master, conf=conf) as job:
        from onebus.spark.jobs import rollup

        query = rollup(
            job.spark,
            lake,
            topics=topics or (),
            feeds=feeds or (),
            window=window,
            watermark=watermark,
            publish_to=publish_to or None,
            checkpoint=checkpoint,
            once=once,
        )
        job.follow(query)


@app.command()
def transform(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What to do, in TOML.")],
    *,
    stores: Stores = None,
    lake: Annotated[
        str | None, typer.Option(metavar="LAKE", help="The lake, for tables and for the checkpoint.")
    ] = None,
    checkpoint: Checkpoint = None,
    once: Once = True,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Run SQL, or a Python function, from topics to a topic or a table of the lake; each row once.

    Example: onebus pipeline transform paid_orders.toml --lake /srv/lake --continuous
    """
    from onebus.cli.jobs import Job
    from onebus.spark.jobs.declaration import Declaration

    # What is wrong in the file is said before Spark takes its time to start.
    Declaration.read(file)
    with Job("transform", stores=stores, master=master, conf=conf) as job:
        from onebus.spark.jobs import transform

        job.follow(transform(job.spark, file, lake=lake, checkpoint=checkpoint, once=once))


def _table(found: "Audit") -> "Table":
    from rich.table import Table

    from onebus.spark.jobs.report import numbers_of

    table = Table(title="audit", title_justify="left")
    table.add_column("", no_wrap=True)
    for column in ("lake", "store only", "missing", "too many", "damaged", "forgotten", "out of order"):
        table.add_column(column, justify="right")
    for one in found.sources:
        cells = (f"[red]{number}[/red]" if is_bad and number else str(number) for number, is_bad in numbers_of(one))
        table.add_row(str(one.source), *cells)
    return table
