"""Sends records that cannot be read to a dead-letter topic, and mended ones back (--help says how)."""

from logfleet_spark.jobs.dlq_router import main

if __name__ == "__main__":
    main()
