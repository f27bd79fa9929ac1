"""Lets Spark find the format `logfleet` without registration.

Spark imports each module on its path whose name begins with `pyspark_`.

Source: pyspark.sql.worker.lookup_data_sources (SPARK-45917).
"""

from logfleet_spark.source import LogfleetSource as DefaultSource

__all__ = ["DefaultSource"]
