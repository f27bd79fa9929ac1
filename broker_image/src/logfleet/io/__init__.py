"""The outside world behind small interfaces: files, clock, processes, etcd, SQLite."""
