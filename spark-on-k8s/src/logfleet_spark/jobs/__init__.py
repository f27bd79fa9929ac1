"""The jobs that ship, and what they share.

Settings, folders, metrics, running to the end of a batch.

`jobs/NAME.py` beside this package is what spark-submit is given; it calls `main` of the module of
its name here.
"""
