"""SQL in settings. Spark checks it before a batch begins, so a mistake is one sentence.

With ANSI mode on, one record whose expression fails (a cast, a division by zero) ends the job for
good: Spark makes the same batch again and again. SESSION turns it off: what cannot be computed is
NULL.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  (the name that Spark's documentation uses)
from pyspark.sql.types import BooleanType, StructField, StructType

SESSION: Mapping[str, str] = {
    "spark.sql.ansi.enabled": "false",
    # INT96, the default, holds nanoseconds: pandas reads no year after 2262 from it
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
"""Configuration of the session that every job needs, whatever the user's is."""
# literals and quoted names are found first, so that a `sum(` inside them stays
_SUM = re.compile(
    r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"|`[^`]*`|\bsum(?=\s*\()", re.IGNORECASE | re.DOTALL
)


class SettingError(Exception):
    """A setting that Spark finds to be wrong; the text names it and says what to do."""


def quoted(name: str) -> str:
    """A column's name as SQL, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"


def reason(problem: PySparkException) -> str:
    """What Spark found, without its error class and the trace below."""
    lines = [line.strip() for line in str(problem).splitlines()]
    first = next((line for line in lines if line), type(problem).__name__)
    return re.sub(r"^\[[A-Z0-9_.]+\]\s*|\s*SQLSTATE:.*", "", first).rstrip(".")


@contextmanager
def naming(setting: str) -> Iterator[None]:
    """What Spark finds wrong in here is wrong with that setting: a SettingError says so."""
    for logger in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(logger).setLevel("CRITICAL")  # the sentence is enough
    try:
        yield
    except PySparkException as problem:
        raise SettingError(f"{setting}: {reason(problem)}") from None


def expression(rows: DataFrame, option: str, text: str) -> tuple[Column, StructField]:
    """One expression over the columns of `rows`, and what it results in.

    A column's name is taken as it stands, with its dots. Raises SettingError, which names the
    option.
    """
    with naming(f"{option} {text!r}"):
        made = F.expr(_names_quoted(text, rows.columns))
        return made, rows.select("*", made).schema[-1]


def condition(rows: DataFrame, option: str, text: str) -> Column:
    """A condition over the columns of `rows`. Raises SettingError, which names the option."""
    made, field = expression(rows, option, text)
    if not isinstance(field.dataType, BooleanType):
        kind = field.dataType.simpleString().upper()
        raise SettingError(f"{option} {text!r} is {kind}; write a condition, such as `a > 1`")
    return made


def expressions(
    rows: DataFrame, option: str, text: str, *, aggregates: bool = False
) -> tuple[Column, StructType]:
    """A list of expressions over the columns of `rows`, as one struct, and its named fields.

    text: as after SELECT. aggregates: of all rows, as after SELECT in a query with GROUP BY. Raises
    SettingError, which names the option.
    """
    sql = _SUM.sub(_tried, _names_quoted(text, rows.columns))
    with naming(f"{option} {text!r}"):
        made = F.expr(f"struct({sql}\n)") if sql.strip() else F.struct()
        frame = rows.groupBy().agg(made) if aggregates else rows.select("*", made)
        fields = frame.schema[-1].dataType
    assert isinstance(fields, StructType)
    for number, field in enumerate(fields, 1):
        if field.name == f"col{number}":  # so Spark names what has no name
            raise SettingError(
                f"{option} {text!r}: number {number} has no name; write `EXPRESSION AS name`"
            )
    return made, fields


def refuse_names(option: str, names: Collection[str], taken: Collection[str]) -> None:
    """Raise SettingError if one of these names, which have no case in SQL, is taken or there twice."""
    seen = {name.lower() for name in taken}
    for name in names:
        if name.lower() in seen:
            raise SettingError(f"{option}: the name {name} is taken; write `... AS another_name`")
        seen.add(name.lower())


def _tried(found: re.Match[str]) -> str:
    """Without ANSI mode `sum` of whole numbers that overflows is a wrong number.

    Of `try_sum` it is NULL.
    """
    return "try_sum" if found.group().lower() == "sum" else found.group()


def _names_quoted(text: str, columns: Collection[str]) -> str:
    """The SQL with quotes around column names that need them, such as service.name.

    Only a name that stands alone between commas is quoted.
    """
    strange = {each.lower() for each in columns if not re.fullmatch(r"\w+", each)}
    parts = (re.fullmatch(r"(\s*)(.*?)(\s*)", part, re.DOTALL) for part in text.split(","))
    found = [part.groups() for part in parts if part]
    return ",".join(f"{a}{quoted(b) if b.lower() in strange else b}{c}" for a, b, c in found)
