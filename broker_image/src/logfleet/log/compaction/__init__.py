"""Compaction: which log is due, the child process, one round, replacing the segments."""
