"""SQL in settings, which Spark checks before the first batch, so that a mistake gives one sentence.

With ANSI mode on, one record whose expression fails (a cast, a division by zero) would end the job
for good, as Spark runs the same batch again at each start. SESSION turns ANSI mode off: a value
that cannot be computed is NULL.
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
    # the default, INT96, holds nanoseconds: pandas cannot read years after 2262 from it
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
"""Spark configuration that every job sets, whatever the user has set."""
# literals and quoted names match first, so that a `sum(` inside them is not replaced
_SUM = re.compile(
    r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"|`[^`]*`|\bsum(?=\s*\()", re.IGNORECASE | re.DOTALL
)


class SettingError(Exception):
    """A setting that Spark refuses; the text names it and says what to do."""


def quoted(name: str) -> str:
    """Quote a column's name for SQL; it may contain any characters."""
    return "`" + name.replace("`", "``") + "`"


def reason(problem: PySparkException) -> str:
    """Return Spark's message without its error class and the trace below it."""
    lines = [line.strip() for line in str(problem).splitlines()]
    first = next((line for line in lines if line), type(problem).__name__)
    return re.sub(r"^\[[A-Z0-9_.]+\]\s*|\s*SQLSTATE:.*", "", first).rstrip(".")


@contextmanager
def naming(setting: str) -> Iterator[None]:
    """Turn errors that Spark finds in this block into a SettingError that names the setting."""
    for logger in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(logger).setLevel("CRITICAL")  # the SettingError says it all
    try:
        yield
    except PySparkException as problem:
        raise SettingError(f"{setting}: {reason(problem)}") from None


def expression(rows: DataFrame, option: str, text: str) -> tuple[Column, StructField]:
    """Compile one expression over the columns of `rows`.

    Return it and the field that it results in.

    A column's name is used as it is, dots included. Raises SettingError, which names the option.
    """
    with naming(f"{option} {text!r}"):
        made = F.expr(_names_quoted(text, rows.columns))
        return made, rows.select("*", made).schema[-1]


def condition(rows: DataFrame, option: str, text: str) -> Column:
    """Compile a condition over the columns of `rows`.

    Raises SettingError, which names the option.
    """
    made, field = expression(rows, option, text)
    if not isinstance(field.dataType, BooleanType):
        kind = field.dataType.simpleString().upper()
        raise SettingError(f"{option} {text!r} is {kind}; write a condition, such as `a > 1`")
    return made


def expressions(
    rows: DataFrame, option: str, text: str, *, aggregates: bool = False
) -> tuple[Column, StructType]:
    """Compile a list of expressions over the columns of `rows`; return one struct and its fields.

    text: in the form of a SELECT list. aggregates: whether they aggregate all rows, as after SELECT
    in a query with GROUP BY. Raises SettingError, which names the option.
    """
    sql = _SUM.sub(_as_try_sum, _names_quoted(text, rows.columns))
    with naming(f"{option} {text!r}"):
        made = F.expr(f"struct({sql}\n)") if sql.strip() else F.struct()
        frame = rows.groupBy().agg(made) if aggregates else rows.select("*", made)
        fields = frame.schema[-1].dataType
    assert isinstance(fields, StructType)
    for number, field in enumerate(fields, 1):
        if field.name == f"col{number}":  # the name that Spark gives an expression without one
            raise SettingError(
                f"{option} {text!r}: number {number} has no name; write `EXPRESSION AS name`"
            )
    return made, fields


def refuse_names(option: str, names: Collection[str], taken: Collection[str]) -> None:
    """Raise SettingError if one of these names is taken or occurs twice.

    Case does not count, as in SQL.
    """
    seen = {name.lower() for name in taken}
    for name in names:
        if name.lower() in seen:
            raise SettingError(f"{option}: the name {name} is taken; write `... AS another_name`")
        seen.add(name.lower())


def _as_try_sum(found: re.Match[str]) -> str:
    """Replace `sum` with `try_sum`.

    Without ANSI mode `sum` of whole numbers overflows to a wrong number, where `try_sum` gives
    NULL.
    """
    return "try_sum" if found.group().lower() == "sum" else found.group()


def _names_quoted(text: str, columns: Collection[str]) -> str:
    """Quote the column names in the SQL that need it, such as service.name.

    Only a name that stands alone between commas is quoted.
    """
    strange = {each.lower() for each in columns if not re.fullmatch(r"\w+", each)}
    parts = (re.fullmatch(r"(\s*)(.*?)(\s*)", part, re.DOTALL) for part in text.split(","))
    found = [part.groups() for part in parts if part]
    return ",".join(f"{a}{quoted(b) if b.lower() in strange else b}{c}" for a, b, c in found)
