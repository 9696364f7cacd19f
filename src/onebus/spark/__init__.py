"""The bus as a source of Spark: ``spark.read.format("onebus")`` and ``spark.readStream.format("onebus")``.

Spark finds the source by itself where onebus is installed. `register` does the same explicitly, and says in plain
words what is missing.
"""

from onebus.spark.session import check_spark, register, use_java, use_this_interpreter

__all__ = ["check_spark", "register", "use_java", "use_this_interpreter"]
