"""The rules of one partition's log, as functions over values; files are the shell's."""
