"""One partition's log: its rules, its files, and the directories that hold it.

Pure modules stand beside those with files; pyproject.toml lists the pure ones.
"""
