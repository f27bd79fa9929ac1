"""Extracts one sentence for a failure from the traces that Spark wraps around it.

An exception in a Python worker or a foreachBatch arrives as the text of a JVM exception. The
original message comes after the last frame of the innermost Python trace. Without a Python trace it
is the first line, without the text that Spark puts before it.
Sources: py4j.clientserver, pyspark.errors.exceptions.captured,
org.apache.spark.sql.errors.QueryExecutionErrors of Spark 4.2.
"""

import re
import traceback

CHARACTERS_MAX = 1000
"""Longest sentence; some of Spark's messages contain whole plans."""
_FRAME = re.compile(r'^ +File ".*", line \d+.*\n(?:[ \t]+.*\n)*', re.MULTILINE)
_END = re.compile(
    r"\n\s+at |^\s*SQLSTATE: |SQLSTATE: \w+;$|^== SQL ==|^=== |^Driver stacktrace:", re.MULTILINE
)
_CAUSED_BY = re.compile(r"^Caused by: (?:\w+\.)*\w+: (.+)$", re.MULTILINE)
_WRAPPED = re.compile(
    r"""\s*(?:
    \[STREAM_FAILED\]\ Query\ \[.*?\]\ terminated\ with\ exception:\ |
    An\ error\ occurred\ while\ calling\ \S+\s+:\ |
    Job\ aborted\ due\ to\ stage\ failure:\ .*?\ \(TID\ \d+\)\ \(.*?\):\ |
    (?:pyspark|py4j|logfleet|logfleet_spark|org\.apache\.spark)\.[\w.]+:\ |
    (?:[a-z]\w*\.)+(?=[A-Z]\w+:\ )
    )""",
    re.VERBOSE | re.DOTALL,
)
_SQLSTATE = re.compile(r" SQLSTATE: \w+;?")


def cause_of(problem: BaseException) -> str:
    """Return the cause of a failure in one line."""
    text = "".join(traceback.format_exception_only(problem))
    frames = list(_FRAME.finditer(text))
    if frames:
        text = text[frames[-1].end() :]
    caused_by = _CAUSED_BY.findall(text)
    text = _END.split(text, maxsplit=1)[0]
    while wrapped := _WRAPPED.match(text):
        text = text[wrapped.end() :]
    text = " ".join(_SQLSTATE.sub("", text).split()).rstrip(";")
    if caused_by and caused_by[-1] not in text:
        text = f"{text} ({caused_by[-1]})"
    return text if len(text) <= CHARACTERS_MAX else f"{text[:CHARACTERS_MAX]}..."
