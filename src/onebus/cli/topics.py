"""`onebus topic`: topics, their partitions, and how far the groups that read them have come."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from onebus.cli.options import AsJson, DataIsJson, PublishedData, Stores, arguments_or_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onebus.message import Message
    from onebus.objects.topics.topic import Place

app = typer.Typer(help="Topics: partitions of messages that groups read.", no_args_is_help=True)

TopicName = Annotated[str, typer.Argument(metavar="TOPIC", help="The name of the topic.")]
GroupName = Annotated[str, typer.Argument(metavar="GROUP", help="The name of the group.")]


@app.command()
def create(
    topic: TopicName,
    *,
    stores: Stores = None,
    partitions: Annotated[int, typer.Option(min=1, metavar="N", help="How many partitions it has.")] = 10,
    max_count: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="How many messages each partition keeps.")
    ] = None,
    max_bytes: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="How many bytes each partition keeps.")
    ] = None,
    max_age: Annotated[
        float | None, typer.Option(min=0.001, metavar="SECONDS", help="For how long messages are kept.")
    ] = None,
    compact: Annotated[bool, typer.Option("--compact", help="Only the last message of each key has to stay.")] = False,
) -> None:
    """Create a topic. Without limits it keeps everything.

    Example: onebus topic create clicks --partitions 12 --max-age 604800
    """
    from onebus.cli.session import run

    limits = {"max_count": max_count, "max_bytes": max_bytes, "max_age_seconds": max_age}
    run(_create(stores, topic, partitions, limits, compact=compact))


@app.command("list")
def list_topics(
    prefix: Annotated[str, typer.Argument(help="Only topics whose names begin so.")] = "", *, stores: Stores = None
) -> None:
    """Print the names of the topics.

    Example: onebus topic list
    """
    from onebus.cli.session import run

    run(_list(stores, prefix))


@app.command()
def describe(topic: TopicName, *, stores: Stores = None, as_json: AsJson = False) -> None:
    """Print what each partition of a topic holds.

    first, last: the ids of the oldest and the newest message that is kept.

    Example: onebus topic describe clicks
    """
    from onebus.cli.session import run

    run(_describe(stores, topic, as_json=as_json))


@app.command()
def publish(
    topic: TopicName,
    data: PublishedData = None,
    *,
    stores: Stores = None,
    key: Annotated[str | None, typer.Option(help="Messages with the same key are in the same partition.")] = None,
    partition: Annotated[int | None, typer.Option(metavar="N", help="Which partition; else they are spread.")] = None,
    as_json: DataIsJson = False,
) -> None:
    """Publish data to a topic, and print the partition and the id of each message. A topic that is new is created.

    Example: onebus topic publish clicks 'home page' --key user-7
    """
    from onebus.cli.session import run

    given = arguments_or_lines(data, "message")
    if not run(_publish(stores, topic, given, key=key, partition=partition, as_json=as_json)):
        raise typer.Exit(1)


@app.command()
def consume(
    topic: TopicName,
    group: GroupName,
    *,
    stores: Stores = None,
    from_end: Annotated[
        bool, typer.Option("--from-end", help="A group that is new begins with what is published from now on.")
    ] = False,
    most: Annotated[int | None, typer.Option("--max", min=1, metavar="N", help="End after N messages.")] = None,
    timeout: Annotated[
        float | None, typer.Option(min=0.001, metavar="SECONDS", help="End when no message comes for so long.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print messages as a member of a group, one per line, until Ctrl-C. What was printed is done for the group.

    Example: onebus topic consume clicks statistics --max 100
    """
    from onebus.cli.session import run

    start = "end" if from_end else "beginning"
    run(_consume(stores, topic, group, start=start, most=most, timeout=timeout, as_json=as_json))


@app.command()
def seek(
    topic: TopicName,
    group: GroupName,
    *,
    stores: Stores = None,
    message_id: Annotated[
        int | None, typer.Option("--id", min=1, metavar="ID", help="Go on with this message; 1 is the beginning.")
    ] = None,
    time: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Go on with what was published then; seconds since 1970.")
    ] = None,
    partition: Annotated[
        list[int] | None, typer.Option(metavar="N", help="Only in this partition; may be given several times.")
    ] = None,
) -> None:
    """Let a group go on somewhere else, also while it reads, and print its new positions.

    Example: onebus topic seek clicks statistics --id 1
    """
    from onebus.cli.session import run

    run(_seek(stores, topic, group, message_id, time, partition))


@app.command()
def lag(topic: TopicName, group: GroupName, *, stores: Stores = None, as_json: AsJson = False) -> None:
    """Print how far a group has come in each partition.

    position: the last message that is done. lag: how many are not. owner: the member that reads the partition.

    Example: onebus topic lag clicks statistics
    """
    from onebus.cli.session import run

    run(_lag(stores, topic, group, as_json=as_json))


@app.command()
def delete(
    topic: TopicName,
    *,
    stores: Stores = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Delete a topic and all its messages.

    Example: onebus topic delete clicks --yes
    """
    from onebus.cli.session import run

    if not yes:
        typer.confirm(f"Delete the topic {topic!r} and all its messages?", abort=True, err=True)
    run(_delete(stores, topic))


async def _create(
    stores: "Sequence[str] | None", topic: str, partitions: int, limits: dict[str, Any], *, compact: bool
) -> None:
    from onebus.cli.session import open_bus
    from onebus.log.retention import Retention

    async with open_bus(stores) as bus:
        await bus.topic(topic, partitions=partitions, retention=Retention(**limits), compact=compact).create()


async def _list(stores: "Sequence[str] | None", prefix: str) -> None:
    from onebus.cli.session import open_bus
    from onebus.cli.stdout import Stdout

    stdout = Stdout()
    async with open_bus(stores) as bus:
        for name in await bus.topics(prefix):
            await stdout.write(name.encode())


async def _describe(stores: "Sequence[str] | None", topic: str, *, as_json: bool) -> None:
    from onebus.cli.session import open_bus

    async with open_bus(stores) as bus:
        states = await bus.topic(topic).partitions()
    rows = [(state.number, state.first_id, state.last_id, state.bytes) for state in states]
    await _print(("partition", "first", "last", "bytes"), rows, as_json=as_json)


async def _publish(
    stores: "Sequence[str] | None",
    name: str,
    given: "Sequence[str] | None",
    *,
    key: str | None,
    partition: int | None,
    as_json: bool,
) -> bool:
    import asyncio

    from onebus.cli.publishing import publish_pieces
    from onebus.cli.session import open_bus
    from onebus.cli.shown import object_line

    def line(where: "Place") -> bytes:
        return object_line(where._asdict()) if as_json else b"%d\t%d" % where

    async with open_bus(stores) as bus:
        topic = bus.topic(name)

        def publish(data: Any) -> "asyncio.Future[Place]":
            # All lines that are there travel together.
            return asyncio.ensure_future(topic.publish(data, key=key, partition=partition))

        return await publish_pieces(given, publish, as_json=as_json, line=line)


async def _consume(
    stores: "Sequence[str] | None",
    topic: str,
    group: str,
    *,
    start: str,
    most: int | None,
    timeout: float | None,
    as_json: bool,
) -> None:
    import asyncio
    from contextlib import suppress

    from onebus.cli.session import note, open_bus, report
    from onebus.cli.stdout import Stdout

    stdout, printed = Stdout(), 0
    loop = asyncio.get_running_loop()
    async with open_bus(stores) as bus:
        # What was not printed is not done, so no batch has more messages than are still wanted.
        consumer = bus.topic(topic).consume(group, start=start, max_messages=1 if most is not None else 100)
        consumer.on("error", report)
        async with consumer:
            note(f"reading {topic} as a member of {group}")
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout) as patience:
                    async for batch in consumer:
                        patience.reschedule(None)
                        for message in batch:
                            await stdout.write(_line(batch.partition, message, as_json=as_json))
                            printed += 1
                        if printed == most:
                            consumer.stop()
                        patience.reschedule(None if timeout is None else loop.time() + timeout)


def _line(partition: int, message: "Message", *, as_json: bool) -> bytes:
    from onebus.cli.shown import message_line

    line = message_line(message, as_json=as_json)
    return b'{"partition":%d,' % partition + line[1:] if as_json else line


async def _seek(
    stores: "Sequence[str] | None",
    topic: str,
    group: str,
    message_id: int | None,
    time: float | None,
    partitions: list[int] | None,
) -> None:
    from onebus.cli.session import open_bus

    async with open_bus(stores) as bus:
        positions = await bus.topic(topic).seek(group, message_id=message_id, time=time, partitions=partitions)
    await _print(("partition", "position"), list(positions.items()), as_json=False)


async def _lag(stores: "Sequence[str] | None", topic: str, group: str, *, as_json: bool) -> None:
    from onebus.cli.session import open_bus

    async with open_bus(stores) as bus:
        found = await bus.topic(topic).lag(group)
    rows = [(one.number, one.position, one.last_id, one.lag, one.owner or "-") for one in found]
    await _print(("partition", "position", "last", "lag", "owner"), rows, as_json=as_json)


async def _delete(stores: "Sequence[str] | None", topic: str) -> None:
    from onebus.cli.session import open_bus

    async with open_bus(stores) as bus:
        await bus.topic(topic).delete()


async def _print(titles: "Sequence[str]", rows: "Sequence[Sequence[object]]", *, as_json: bool) -> None:
    from onebus.cli.shown import object_line
    from onebus.cli.stdout import Stdout
    from onebus.cli.table import table

    stdout = Stdout()
    lines = (
        [object_line(dict(zip(titles, row, strict=True))) for row in rows]
        if as_json
        else table([titles, *([str(cell) for cell in row] for row in rows)])
    )
    for line in lines:
        await stdout.write(line)
