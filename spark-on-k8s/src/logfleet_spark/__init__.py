"""PySpark data source and jobs for Logfleet topics.

spark.readStream.format("logfleet").option("kafka.bootstrap.servers", "...").option("subscribe",
"t").load()
"""

from pyspark.sql import SparkSession

from logfleet_spark.listener import GroupCommits
from logfleet_spark.source import LogfleetSource

__all__ = ["GroupCommits", "LogfleetSource", "register"]


_SET_BY_STREAMS = (
    "SPARK_AUTH_SOCKET_TIMEOUT",
    "SPARK_BUFFER_SIZE",
    "SPARK_LOCAL_DIRS",
    "SPARK_PYTHON_RUNTIME",
)
"""Environment variables that each stream sets for its Python process, in a map that all streams
share.

Source: PythonStreamingSourceRunner.init of Spark 4.2.
"""


def register(spark: SparkSession) -> None:
    """Register the format `logfleet` in a session, and make that session the thread's active one.

    Spark finds Python data sources on the driver's path (see pyspark_logfleet). There are two
    reasons to register this one all the same: several streams (see `register_for_streams`), and
    writes from a thread that the user started. For a write, Spark searches only the session that is
    active in the thread, and such a thread has none until it creates a DataFrame. Source:
    DataSource.lookupDataSource, SparkSession.createDataFrame of Spark 4.2.
    """
    register_for_streams(spark)
    spark.createDataFrame([], "nothing INT")


def register_for_streams(spark: SparkSession) -> None:
    """Register the format `logfleet` in a session that starts several streams at once.

    Two streams that start at once add the same variables to one map without a lock. The map then
    counts a variable twice, and no later query that reads the format can be sent to an executor
    ("Illegal size 5 of collection, expected 6"). If the variables are in the map from the
    beginning, streams only replace their values, which is safe.
    """
    # a session of Spark Connect has no context: a client cannot reach the server's
    if (context := getattr(spark, "sparkContext", None)) is not None:
        for name in _SET_BY_STREAMS:
            context.environment.setdefault(name, "")
    spark.dataSource.register(LogfleetSource)
