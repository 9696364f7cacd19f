"""Found by Spark, which looks at every module whose name starts with ``pyspark_``: makes ``format("onebus")`` known."""

from contextlib import suppress

# Spark looks at this wherever it is installed, also where nobody uses the bus with Spark and its parts are missing.
with suppress(ImportError):
    from onebus.spark.source import BusDataSource as DefaultSource  # noqa: F401
