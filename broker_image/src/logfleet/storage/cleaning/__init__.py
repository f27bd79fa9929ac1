"""Compaction: which log, by which process, one round, and its new segments in place of the old."""
