"""What `sessions.toml` does with the clicks."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f


@f.udf("string", useArrow=False)
def section(page: str) -> str:
    """Return the part of the site that a page belongs to."""
    return page.strip("/").partition("/")[0] or "home"


def sessions(clicks: DataFrame) -> DataFrame:
    """Return how long each visit was, and what was seen."""
    visits = clicks.groupBy(f.session_window("at", "30 minutes"), "visitor").agg(
        f.count("*").alias("clicks"), f.array_sort(f.collect_set(section("page"))).alias("sections")
    )
    return visits.select(
        "visitor",
        f.col("session_window.start").alias("start"),
        f.col("session_window.end").alias("end"),
        "clicks",
        "sections",
    )
