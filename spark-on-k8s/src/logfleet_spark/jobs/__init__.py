"""The jobs that ship with the image, and the modules they share.

spark-submit is given `jobs/NAME.py`, which calls `main` of the module NAME in this package.
"""
