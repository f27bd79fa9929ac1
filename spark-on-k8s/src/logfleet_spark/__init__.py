"""PySpark data source and jobs for Logfleet topics.

import logfleet_spark
logfleet_spark.register(spark)
spark.readStream.format("logfleet").option("kafka.bootstrap.servers", "...").option("subscribe", "t").load()
"""

from pyspark.sql import SparkSession

from logfleet_spark.listener import GroupCommits
from logfleet_spark.source import LogfleetSource

__all__ = ["GroupCommits", "LogfleetSource", "register"]


def register(spark: SparkSession) -> None:
    """Make the format `logfleet` known to a session."""
    spark.dataSource.register(LogfleetSource)
