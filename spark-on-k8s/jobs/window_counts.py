"""Counts the events of a topic per window (--help says how): spark-submit window_counts.py --topic flights ..."""

from logfleet_spark.jobs.window_counts import main

if __name__ == "__main__":
    main()
