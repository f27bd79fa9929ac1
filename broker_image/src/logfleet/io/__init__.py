"""The world behind small interfaces: files, clock, etcd, SQLite."""
