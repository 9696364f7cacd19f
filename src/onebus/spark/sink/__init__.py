"""The sink of Spark: what is written is staged by the tasks, and appended by the driver, once."""
