"""PySpark data source and jobs for Logfleet topics.

spark.readStream.format("logfleet").option("kafka.bootstrap.servers", "...").option("subscribe",
"t").load()
"""

from pyspark.sql import SparkSession

from logfleet_spark.listener import GroupCommits
from logfleet_spark.source import LogfleetSource

__all__ = ["GroupCommits", "LogfleetSource", "register"]


def register(spark: SparkSession) -> None:
    """Register the format `logfleet` in a session, and for the calling thread.

    Spark finds formats in Python on the path of its driver (see pyspark_logfleet), but for a write
    it looks only into the session that is active in the thread, and there is none in those of the
    user's own until it makes a frame. Source: DataSource.lookupDataSource,
    SparkSession.createDataFrame of Spark 4.2.
    """
    spark.dataSource.register(LogfleetSource)
    spark.createDataFrame([], "nothing INT")
