"""Upserts of micro-batches into a table of PostgreSQL: repeating a batch changes nothing.

A batch is one transaction on one connection of the driver. Its rows are copied into a temporary
table with the columns of the target, and from there into the target by INSERT ... ON CONFLICT. The
target and a unique constraint on the keys must exist. Spark formats the lines of COPY; they pass
through the driver one partition at a time.

If the database refuses a batch, SettingError says why in one sentence. If it cannot be reached, the
batch is retried for AWAY_S_MAX seconds; then DatabaseAway ends the query, and the checkpoint stays
before that batch.
"""

from __future__ import annotations  # psycopg is imported by jobs that use it only

import argparse
import logging
import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructField, StructType

from logfleet_spark.jobs.expressions import SettingError
from logfleet_spark.jobs.settings import Parser

if TYPE_CHECKING:
    from psycopg import Cursor, Error

log = logging.getLogger(__name__)

PASSWORD = "LOGFLEET_DATABASE_PASSWORD"  # noqa: S105  (the name of a variable)
AWAY_S_MAX = 60.0
"""Long enough for PostgreSQL to restart or for another server to take over."""
PAUSE_S_MAX = 5.0
CONNECTION: Mapping[str, str | int] = {
    "application_name": "logfleet",
    "connect_timeout": 10,
    # if the server's machine is lost nothing answers: without these the driver would wait for hours
    "keepalives_idle": 20,
    "tcp_user_timeout": 60_000,
}
STAGED = "logfleet_batch"
PART = r'([^\W\d][\w$]*|"([^"\0]|"")+")'
TYPES: Mapping[str, str] = {
    "string": "text",
    "byte": "smallint",
    "short": "smallint",
    "integer": "integer",
    "long": "bigint",
    "float": "real",
    "double": "double precision",
    "decimal": "numeric",
    "boolean": "boolean",
    "date": "date",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
    "binary": "bytea",
    **dict.fromkeys(("array", "map", "struct"), "json"),
}
"""PostgreSQL's type for each type of Spark."""


class DatabaseAway(Exception):
    """The database accepted no batch for AWAY_S_MAX seconds."""


@dataclass(frozen=True)
class Database:
    """A table of PostgreSQL.

    url: in the form of libpq, `postgresql://USER@HOST/DATABASE`; never logged, as it may hold a
    password. table: a name in SQL, with or without its schema. password: None leaves it to libpq
    (PGPASSWORD, ~/.pgpass).
    """

    url: str
    table: str
    password: str | None = None

    def upsert(self, rows: DataFrame, keys: Sequence[str]) -> None:
        """Write the rows; they replace those with the same keys.

        Raises SettingError if the table cannot hold the rows, and DatabaseAway; the table is
        unchanged then.
        """
        lines = copy_lines(rows).persist()
        try:
            has_rows = lines.count() > 0  # all tasks at once; the iterator runs them one by one
            give_up_s = time.monotonic() + AWAY_S_MAX
            pause_s = 0.1
            while (
                problem := self._try_write(lines if has_rows else None, rows.schema, keys)
            ) is not None:
                if time.monotonic() + pause_s > give_up_s:
                    raise DatabaseAway(
                        f"--database-url: the database accepted no batch for {AWAY_S_MAX:.0f} s, so this one is "
                        f"left for the next start ({problem})"
                    )
                log.warning("the database did not accept the batch; trying again: %s", problem)
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, PAUSE_S_MAX)
        finally:
            lines.unpersist()

    def _try_write(
        self, lines: DataFrame | None, schema: StructType, keys: Sequence[str]
    ) -> str | None:
        """Try to write the batch.

        Return None, or why it failed if a retry may help. Raises SettingError.
        """
        import psycopg

        try:
            with psycopg.connect(self.url, **self._options()) as connection:
                self._write(connection.cursor(), lines, schema, keys)
        except psycopg.Error as problem:
            if _may_succeed_later(problem):
                return _message_of(problem)
            raise SettingError(self._advice_for(problem, schema, keys)) from None
        return None

    def _options(self) -> dict[str, Any]:
        """Return the connection parameters that the URL does not set."""
        from psycopg.conninfo import conninfo_to_dict

        given = conninfo_to_dict(self.url)
        more = {key: value for key, value in CONNECTION.items() if key not in given}
        return more | ({"password": self.password} if self.password else {})

    def _write(
        self, cursor: Cursor, lines: DataFrame | None, schema: StructType, keys: Sequence[str]
    ) -> None:
        self._check_columns(cursor, schema)
        names = ", ".join(identifier(name) for name in schema.names)
        cursor.execute(
            f"CREATE TEMPORARY TABLE {STAGED} ON COMMIT DROP AS "  # noqa: S608  (names are checked or quoted)
            f"SELECT {names} FROM {self.table} WITH NO DATA"
        )
        if lines is not None:
            with cursor.copy(f"COPY {STAGED} FROM STDIN") as copy:
                for (line,) in lines.toLocalIterator():
                    copy.write(line)
            self._check_nulls(cursor, keys)
        cursor.execute(upsert_statement(self.table, schema.names, keys))

    def _check_columns(self, cursor: Cursor, schema: StructType) -> None:
        cursor.execute(f"SELECT * FROM {self.table} LIMIT 0")  # noqa: S608
        there = {column.name for column in cursor.description or ()}
        missing = [field for field in schema if field.name not in there]
        if missing:
            added = ", ".join(f"ADD {_declared(field)}" for field in missing)
            raise SettingError(
                f"--output {self.table}: the table lacks a column: ALTER TABLE {self.table} {added}"
            )

    def _check_nulls(self, cursor: Cursor, keys: Sequence[str]) -> None:
        """Raise SettingError if a key is null and the table's constraint treats nulls as different.

        Each batch would then add such rows again.
        """
        names = ", ".join(identifier(key) for key in keys)
        cursor.execute(
            f"SELECT EXISTS (SELECT FROM {STAGED} WHERE num_nulls({names}) > 0) AND NOT EXISTS ("  # noqa: S608
            "SELECT FROM pg_index i WHERE indrelid = %s::regclass AND indisunique "
            # servers before PostgreSQL 15 have no column indnullsnotdistinct
            "AND (to_jsonb(i) ->> 'indnullsnotdistinct')::boolean AND ARRAY(SELECT attname::text FROM "
            "pg_attribute WHERE attrelid = indrelid AND attnum = ANY (indkey) ORDER BY 1) "
            "= ARRAY(SELECT unnest(%s::text[]) ORDER BY 1))",
            (self.table, list(keys)),
        )
        found = cursor.fetchone()
        if found is not None and found[0]:
            raise SettingError(
                f"--output {self.table}: a group is null, and nulls are never the same for the table's "
                f"constraint: {self._unique(keys)} (PostgreSQL 15 or newer), or count by "
                "`coalesce(...)`"
            )

    def _unique(self, keys: Sequence[str]) -> str:
        names = ", ".join(identifier(key) for key in keys)
        return f"ALTER TABLE {self.table} ADD UNIQUE NULLS NOT DISTINCT ({names})"

    def _advice_for(self, problem: Error, schema: StructType, keys: Sequence[str]) -> str:
        """Say what to do about an error that no retry can mend."""
        import psycopg

        match problem:
            case psycopg.errors.UndefinedTable():
                columns = ", ".join(_declared(field) for field in schema)
                unique = ", ".join(identifier(key) for key in keys)
                return (
                    f"--output {self.table}: there is no such table: CREATE TABLE {self.table} "
                    f"({columns}, UNIQUE NULLS NOT DISTINCT ({unique}))"
                )
            case psycopg.errors.InvalidColumnReference():
                return (
                    f"--output {self.table}: no unique constraint identifies a row: "
                    f"{self._unique(keys)}"
                )
            case psycopg.errors.CardinalityViolation():
                return (
                    f"--output {self.table}: two groups of a batch are the same in the database, "
                    "because its columns are narrower than the groups: widen their types"
                )
            case psycopg.errors.ProgramLimitExceeded():
                return (
                    f"--output {self.table}: a group is too long for an index of the database "
                    f"({_message_of(problem)}); count by `left(..., 500)`"
                )
            case psycopg.OperationalError():
                return (
                    f"--database-url: the database refuses the connection ({_message_of(problem)}); check "
                    f"user and password ({PASSWORD})"
                )
        return f"--output {self.table}: the database refuses the batch: {_message_of(problem)}"


def copy_lines(rows: DataFrame) -> DataFrame:
    """Format each row as a line of PostgreSQL's COPY, in one text column.

    Raises SettingError for a type that PostgreSQL does not have.
    """
    safe = rows.toDF(*(f"c{number}" for number in range(len(rows.columns))))  # dots in names
    columns = [
        F.coalesce(_escaped(_text(field, F.col(name))), F.lit(r"\N"))
        for field, name in zip(rows.schema, safe.columns, strict=True)
    ]
    return safe.select(F.concat(F.concat_ws("\t", *columns), F.lit("\n")).alias("line"))


def _text(field: StructField, column: Column) -> Column:
    """Write a value as text that PostgreSQL reads as the same value.

    Lists, maps and structs as JSON.
    """
    match TYPES.get(field.dataType.typeName()):
        case "text":
            # PostgreSQL's text must be UTF-8 without U+0000; other values are written as hex
            is_text = F.is_valid_utf8(column) & ~F.contains(column, F.lit("\0"))
            return F.when(is_text, column).when(column.isNotNull(), _bytes(column))
        case "timestamptz":
            # six digits for the year: with a year of five digits Spark would write a plus sign
            return F.date_format(column, "yyyyyy-MM-dd HH:mm:ss.SSSSSSxxxxx G")
        case "bytea":
            return _bytes(column)
        case "json":
            return F.to_json(column)
        case None:
            raise SettingError(
                f"--sink database: {field.name} is of type {field.dataType.simpleString()}, which "
                "PostgreSQL has not: write CAST(... AS STRING)"
            )
    return F.ltrim(column.cast("string"), F.lit("+"))  # the sign of a year of five digits


def _bytes(column: Column) -> Column:
    """Write the bytes as hex, in the form of PostgreSQL's bytea."""
    return F.concat(F.lit(r"\x"), F.lower(F.hex(column)))


def _escaped(text: Column) -> Column:
    r"""Escape the characters that COPY treats as special.

    The backslash comes first, as the other replacements add backslashes. Source: PostgreSQL, COPY,
    text format.
    """
    for character, written in {"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"}.items():
        text = F.replace(text, F.lit(character), F.lit(written))
    return text


def _declared(field: StructField) -> str:
    return f"{identifier(field.name)} {TYPES[field.dataType.typeName()]}"


def identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def upsert_statement(table: str, columns: Sequence[str], keys: Sequence[str]) -> str:
    """Build the statement that moves the staged rows into the table, in the order of their keys.

    The order keeps two jobs that replace the same rows from a deadlock. Source: PostgreSQL, INSERT,
    ON CONFLICT Clause.
    """
    names = ", ".join(identifier(column) for column in columns)
    others = [identifier(column) for column in columns if column not in keys]
    change = ", ".join(f"{column} = EXCLUDED.{column}" for column in others)
    on = ", ".join(identifier(key) for key in keys)
    then = f"UPDATE SET {change}" if others else "NOTHING"
    return (
        f"INSERT INTO {table} ({names}) SELECT {names} FROM {STAGED} ORDER BY {on} "  # noqa: S608  (names are checked or quoted)
        f"ON CONFLICT ({on}) DO {then}"
    )


def _may_succeed_later(problem: Error) -> bool:
    """Return whether a retry may help.

    It may after no response, a lost connection, a server that stops, or a deadlock. If the server
    asked for a password, it refused the user, and a retry does not help.
    """
    import psycopg

    failed = problem.pgconn  # set if the attempt to connect failed
    was_asked = failed is not None and (failed.used_password or failed.needs_password)
    # a value that is too large for an index fails again
    never = isinstance(problem, psycopg.errors.ProgramLimitExceeded)
    return isinstance(problem, psycopg.OperationalError) and not was_asked and not never


def _message_of(problem: Error) -> str:
    """Return the message of the server, or of libpq, in one line; libpq's names host and user."""
    parts = [problem.diag.message_primary or str(problem), problem.diag.message_detail]
    parts.append(problem.diag.context)
    return " ".join("; ".join(part for part in parts if part).split())


def check_database(parser: Parser, settings: argparse.Namespace) -> None:
    """End the process with a sentence if a setting of the database sink is wrong.

    The name of the table is checked because it goes into SQL unquoted.
    """
    if settings.sink != "database":
        return
    import psycopg

    url = settings.database_url or ""
    try:
        is_url = url.startswith(("postgresql://", "postgres://"))
        psycopg.conninfo.conninfo_to_dict(url)
    except psycopg.ProgrammingError:  # its text holds the URL, and perhaps a password
        is_url = False
    if not is_url:
        parser.error("--sink database needs --database-url postgresql://USER@HOST/DATABASE")
    if not re.fullmatch(rf"{PART}(\.{PART})?", settings.output):
        parser.error(
            f"--output {settings.output!r} is no table; write NAME or SCHEMA.NAME as in SQL, in double "
            "quotes where it has other characters than letters, digits and _"
        )


def add_database(parser: Parser) -> None:
    parser.add_argument(
        "--database-url",
        help="postgresql://USER@HOST/DATABASE of the database sink; the password comes from the variable "
        f"{PASSWORD}, or as libpq finds it (PGPASSWORD, ~/.pgpass)",
    )


def database_of(settings: argparse.Namespace) -> Database:
    """Return the table that a job's settings name."""
    return Database(settings.database_url, settings.output, os.environ.get(PASSWORD))
