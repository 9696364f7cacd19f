"""Starts Spark's Python workers with what they need: imported once, and not by each of them.

That would be most of the time that a driver needs which lives for some seconds only.
"""

import runpy

import pyarrow.compute

import onebus.spark.source
import onebus.stores.redis.store
import onebus.stores.sql.store

__all__ = ["onebus", "pyarrow"]

if __name__ == "__main__":
    runpy.run_module("pyspark.daemon", run_name="__main__", alter_sys=True)
