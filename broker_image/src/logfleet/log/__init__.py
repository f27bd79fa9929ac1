"""The rules of one partition's log, as functions over values; `storage` does the file access."""
