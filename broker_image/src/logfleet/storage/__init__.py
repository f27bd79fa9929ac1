"""A partition's log on disk: segments, indexes, loading, directories, flushing, disk space and failure. Knows no socket, no cluster."""
