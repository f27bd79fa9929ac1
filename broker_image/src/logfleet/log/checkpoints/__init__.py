"""The checkpoint files of a log directory: their format, when they are written."""
