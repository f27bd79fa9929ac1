"""Sends the rows of a table to a topic, each once (--help says how)."""

from logfleet_spark.jobs.table_to_topic import main

if __name__ == "__main__":
    main()
