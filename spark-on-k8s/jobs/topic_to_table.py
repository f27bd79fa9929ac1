"""Copies a topic into a table partitioned by day: stream, batch or backfill (--help says how)."""

from logfleet_spark.jobs.topic_to_table import main

if __name__ == "__main__":
    main()
