"""The data pipeline, cell by cell as in a notebook: a shop publishes what happens in it, and Spark tells what that was.

Run: python examples/pipeline.py [MESSAGES]
"""

# %% A bus in a file, and a shop on which something is going on
import asyncio
import random
import sys
import tempfile
import time
from pathlib import Path

from onebus import Bus
from onebus.objects.topics.topic import Topic

MESSAGES = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
VISITS_AT_ONCE = 100
CLICKS_PER_VISIT = 20

folder = Path(tempfile.mkdtemp(prefix="onebus-pipeline-"))
url = f"sqlite:///{folder}/bus.db"
lake = f"{folder}/lake"
chance = random.Random(7)


async def visit(clicks: Topic, orders: Topic, most: int) -> int:
    """Publish what a visitor does, and return how many messages that were."""
    visitor = f"visitor-{chance.randrange(5000)}"
    pages = [f"/books/{int(chance.paretovariate(1.2)) % 100}" for _ in range(min(CLICKS_PER_VISIT, most))]
    await clicks.publish_many([{"visitor": visitor, "page": page} for page in pages], key=visitor)
    if len(pages) == most or chance.random() < 0.5:
        return len(pages)
    await orders.publish({"visitor": visitor, "total": 5 + chance.randrange(4000) / 100}, key=visitor)
    return len(pages) + 1


async def open_the_shop() -> None:
    """Let visitors come, some at a time, until there are enough messages."""
    async with Bus(url) as bus:
        clicks, orders = bus.topic("clicks", partitions=4), bus.topic("orders", partitions=2)
        left = MESSAGES
        while left:
            visitors = min(VISITS_AT_ONCE, left // (CLICKS_PER_VISIT + 1)) or 1
            left -= sum(await asyncio.gather(*(visit(clicks, orders, left) for _ in range(visitors))))
        # A window is complete when something newer has come.
        await asyncio.sleep(1.1)
        await clicks.publish({"visitor": "the last one", "page": "/"}, key="the last one")


started = time.perf_counter()
asyncio.run(open_the_shop())
print(f"{MESSAGES + 1:,} messages published in {time.perf_counter() - started:.1f} s.", flush=True)

# %% Spark, which knows the bus
from pyspark.sql import SparkSession  # noqa: E402

from onebus.spark import check_spark, register, use_this_interpreter  # noqa: E402
from onebus.spark.jobs import archive, audit, history, rollup, table, transform  # noqa: E402
from onebus.spark.jobs.report import html_report  # noqa: E402

check_spark()
use_this_interpreter()
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.driver.host", "127.0.0.1")  # nobody else needs to reach this Spark
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .config("spark.log.level", "ERROR")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.sql.session.timeZone", "UTC")
    .getOrCreate()
)
# Not with the others above: those are in the list of processes, and the URL of a store may have a password.
spark.conf.set("spark.onebus.secret.url", url)
register(spark)

# %% A topic is a data frame
clicks = (
    spark.read.format("onebus").options(subscribe="clicks", value="json", schema="visitor string, page string").load()
)
print("\nThe books that were looked at most:")
clicks.groupBy("value.page").count().orderBy("count", ascending=False).show(5)

# %% Archive: all messages to a lake of Parquet files, each once
archived = archive(spark, lake, topics=["clicks", "orders"])
print(f"{archived.rows:,} messages are in the lake.")

# %% Roll-up: windows of one second, into a table of the lake and to the channel /rollup
rollup(spark, lake, topics=["clicks", "orders"], window="1 second", watermark="0 seconds", once=True).awaitTermination()
windows = table(spark, lake, "rollup").drop("query", "batch").sort("start", "name")
print("\nWhat happened, second by second, and how old it was when Spark took it up (the last second is not over yet):")
windows.selectExpr("date_format(start, 'HH:mm:ss') second", "* except (start, end, kind)").show()

# %% Transform: what a file declares, here orders of more than 40, in a topic of their own
declared = folder / "large_orders.toml"
declared.write_text(
    """
sql = "SELECT visitor, total FROM orders WHERE total > 40"

[from.orders]
schema = "visitor string, total double"

[to]
topic = "large-orders"
key = "visitor"
"""
)
transform(spark, declared, lake=lake, once=True).awaitTermination()
print(f"{spark.read.format('onebus').option('subscribe', 'large-orders').load().count():,} orders are large.")

# %% History: lake and store as one, without overlap and without a hole
print(f"{history(spark, 'clicks', lake=lake).count():,} clicks are remembered.")

# %% Audit: is everything there, once and in order?
found = audit(spark, lake)
report = folder / "audit.html"
report.write_text(html_report(found))
print("\nAudit:")
for one in found.sources:
    print(f"  {one.source}: {one.lake_rows:,} in the lake, {one.only_in_store:,} only in the store")
print(*found.problems, f"{found.missing} missing, {found.doubled} duplicated.", sep="\n")
print(f"The report is in {report}. Remove the folder when you have seen enough.")
spark.stop()
sys.exit(0 if found.is_clean else 1)
