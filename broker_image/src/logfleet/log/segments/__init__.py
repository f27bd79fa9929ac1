"""Segments: files of batches with their sparse indexes, how they are opened and replaced."""
