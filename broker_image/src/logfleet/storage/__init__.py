"""A partition's log on disk: segments, indexes, loading, directories, flushing, disk errors.

Imports nothing of sockets or the metadata store.
"""
