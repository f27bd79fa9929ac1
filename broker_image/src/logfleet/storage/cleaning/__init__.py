"""Compaction: choosing a log, the child process, one round, and replacing the old segments."""
