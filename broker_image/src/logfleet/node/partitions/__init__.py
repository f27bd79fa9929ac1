"""The partitions that this broker hosts: which, by what configuration, what is committed, what is done to them from time to time."""
