"""Upserts of micro-batches into a table of PostgreSQL: a batch that Spark repeats changes nothing.

A batch is one transaction on one connection of the driver: its rows are copied into a temporary
table with the columns of the target, and go from there into the target by INSERT ... ON CONFLICT.
The table and a unique constraint on the keys must be there. Spark makes the lines of COPY; they
pass through the driver one partition at a time.

What the database refuses is a SettingError of one sentence. A database that cannot be reached is
tried again for AWAY_S_MAX seconds, then DatabaseAway ends the query: the checkpoint stays before
that batch.
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
"""PostgreSQL restarts, or another server takes over, within less."""
PAUSE_S_MAX = 5.0
CONNECTION: Mapping[str, str | int] = {
    "application_name": "logfleet",
    "connect_timeout": 10,
    # a server whose machine is lost answers nothing: without these the driver would wait for hours
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
"""PostgreSQL's types by Spark's."""


class DatabaseAway(Exception):
    """The database took no batch for AWAY_S_MAX seconds."""


@dataclass(frozen=True)
class Database:
    """A table of PostgreSQL.

    url: as libpq takes it, `postgresql://USER@HOST/DATABASE`; never logged: it may hold a password.
    table: a name of SQL, perhaps with its schema. password: None for libpq's own ways (PGPASSWORD,
    ~/.pgpass).
    """

    url: str
    table: str
    password: str | None = None

    def upsert(self, rows: DataFrame, keys: Sequence[str]) -> None:
        """The rows are in the table, in the place of those with the same keys.

        Nothing is changed where it raises SettingError (the table cannot hold the rows) or
        DatabaseAway.
        """
        lines = copy_lines(rows).persist()
        try:
            has_rows = lines.count() > 0  # all tasks at once; the iterator runs them one by one
            give_up_s = time.monotonic() + AWAY_S_MAX
            pause_s = 0.1
            while (
                problem := self._tried(lines if has_rows else None, rows.schema, keys)
            ) is not None:
                if time.monotonic() + pause_s > give_up_s:
                    raise DatabaseAway(
                        f"--database-url: the database took no batch for {AWAY_S_MAX:.0f} s, so this one is "
                        f"left for the next start ({problem})"
                    )
                log.warning(
                    "the database did not take the batch, which is tried again: %s", problem
                )
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, PAUSE_S_MAX)
        finally:
            lines.unpersist()

    def _tried(
        self, lines: DataFrame | None, schema: StructType, keys: Sequence[str]
    ) -> str | None:
        """None if the batch is written, else why it may be tried again. Raises SettingError."""
        import psycopg

        try:
            with psycopg.connect(self.url, **self._options()) as connection:
                self._write(connection.cursor(), lines, schema, keys)
        except psycopg.Error as problem:
            if _may_pass(problem):
                return _words(problem)
            raise SettingError(self._sentence(problem, schema, keys)) from None
        return None

    def _options(self) -> dict[str, Any]:
        """Parameters of the connection that the URL does not name."""
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
        """Raise SettingError if a key is null and the constraint of the table lets nulls differ.

        Each batch would add such rows again.
        """
        names = ", ".join(identifier(key) for key in keys)
        cursor.execute(
            f"SELECT EXISTS (SELECT FROM {STAGED} WHERE num_nulls({names}) > 0) AND NOT EXISTS ("  # noqa: S608
            "SELECT FROM pg_index i WHERE indrelid = %s::regclass AND indisunique "
            # older servers than PostgreSQL 15 have no such column
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

    def _sentence(self, problem: Error, schema: StructType, keys: Sequence[str]) -> str:
        """What to do about an error that comes again however often the batch is tried."""
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
                    "because its columns hold less than the groups do: widen their types"
                )
            case psycopg.errors.ProgramLimitExceeded():
                return (
                    f"--output {self.table}: a group is too long for an index of the database "
                    f"({_words(problem)}); count by `left(..., 500)`"
                )
            case psycopg.OperationalError():
                return (
                    f"--database-url: the database refuses the connection ({_words(problem)}); check "
                    f"user and password ({PASSWORD})"
                )
        return f"--output {self.table}: the database refuses the batch: {_words(problem)}"


def copy_lines(rows: DataFrame) -> DataFrame:
    """Each row as a line of PostgreSQL's COPY, in one column of text.

    Raises SettingError for a type that PostgreSQL has not.
    """
    safe = rows.toDF(*(f"c{number}" for number in range(len(rows.columns))))  # dots in names
    columns = [
        F.coalesce(_escaped(_text(field, F.col(name))), F.lit(r"\N"))
        for field, name in zip(rows.schema, safe.columns, strict=True)
    ]
    return safe.select(F.concat(F.concat_ws("\t", *columns), F.lit("\n")).alias("line"))


def _text(field: StructField, column: Column) -> Column:
    """A value as text that PostgreSQL reads as the same value; lists, maps and structs as JSON."""
    match TYPES.get(field.dataType.typeName()):
        case "text":
            # PostgreSQL's text holds no U+0000 and nothing but UTF-8
            is_text = F.is_valid_utf8(column) & ~F.contains(column, F.lit("\0"))
            return F.when(is_text, column).when(column.isNotNull(), _bytes(column))
        case "timestamptz":
            # six digits of a year, as Spark would write a plus sign before five
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
    """As PostgreSQL's bytea is written."""
    return F.concat(F.lit(r"\x"), F.lower(F.hex(column)))


def _escaped(text: Column) -> Column:
    r"""Source: PostgreSQL, COPY, text format. The backslash first, as the others bring some."""
    for character, written in {"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"}.items():
        text = F.replace(text, F.lit(character), F.lit(written))
    return text


def _declared(field: StructField) -> str:
    return f"{identifier(field.name)} {TYPES[field.dataType.typeName()]}"


def identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def upsert_statement(table: str, columns: Sequence[str], keys: Sequence[str]) -> str:
    """In the order of the keys: two jobs that replace the same rows do not lock one another out.

    Source: PostgreSQL, INSERT, ON CONFLICT Clause.
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


def _may_pass(problem: Error) -> bool:
    """Whether trying again may help: no answer, a lost connection, a server that stops, a deadlock.

    A server that has asked for a password has refused the user.
    """
    import psycopg

    failed = problem.pgconn  # of an attempt to connect
    was_asked = failed is not None and (failed.used_password or failed.needs_password)
    # a value too large for an index stays so
    never = isinstance(problem, psycopg.errors.ProgramLimitExceeded)
    return isinstance(problem, psycopg.OperationalError) and not was_asked and not never


def _words(problem: Error) -> str:
    """The words of the server in one line, or of libpq, which name host and user."""
    parts = [problem.diag.message_primary or str(problem), problem.diag.message_detail]
    parts.append(problem.diag.context)
    return " ".join("; ".join(part for part in parts if part).split())


def check_database(parser: Parser, settings: argparse.Namespace) -> None:
    """End with a sentence if a setting of the database sink is wrong.

    The name of the table goes into SQL as it is.
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
    """The table that a job's settings name."""
    return Database(settings.database_url, settings.output, os.environ.get(PASSWORD))
