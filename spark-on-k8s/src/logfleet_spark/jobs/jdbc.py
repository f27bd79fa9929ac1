"""Upserts of micro-batches into a database table by JDBC: a batch that Spark repeats changes nothing.

The rows go into a table of their own, and from there in one statement. Written for PostgreSQL's INSERT ... ON CONFLICT, which SQLite
and DuckDB know too; the table and a unique constraint on the keys must be there. The password comes from LOGFLEET_JDBC_PASSWORD: arguments are
seen by everybody who may list processes.
"""

import argparse
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from logfleet_spark.jobs.settings import Parser

POSTGRESQL = "org.postgresql.Driver"
PASSWORD = "LOGFLEET_JDBC_PASSWORD"  # noqa: S105  (the name of a variable)


@dataclass(frozen=True)
class Database:
    """A table behind a JDBC URL. table: its name, with its schema's if need be. driver: class of the JDBC driver."""

    url: str
    table: str
    user: str | None
    password: str | None
    driver: str = POSTGRESQL

    def upsert(self, rows: DataFrame, keys: Sequence[str], batch_id: int) -> None:
        """The rows are in the table; one with the same keys that was there is replaced."""
        staging = f"{self.table}_batch_{batch_id}"
        rows.write.format("jdbc").options(**self._options(staging)).mode("overwrite").save()
        spark = rows.sparkSession
        try:
            self._execute(spark, upsert_statement(self.table, staging, rows.columns, keys))
        finally:
            self._execute(spark, f"DROP TABLE {staging}")

    def _options(self, table: str) -> dict[str, str]:
        options = {"url": self.url, "dbtable": table, "driver": self.driver}
        if self.user:
            options["user"] = self.user
        if self.password:
            options["password"] = self.password
        return options

    def _execute(self, spark: SparkSession, statement: str) -> None:
        """Run a statement on the driver, in a transaction of its own."""
        jvm: Any = spark._jvm  # noqa: SLF001  (pyspark has no JDBC of its own)
        jdbc = jvm.org.apache.spark.sql.execution.datasources.jdbc.JDBCOptions
        given = jvm.PythonUtils.toScalaMap(self._options(self.table))
        dialect = jvm.org.apache.spark.sql.jdbc.JdbcDialects.get(self.url)
        connection = dialect.createConnectionFactory(jdbc(given)).apply(-1)
        try:
            connection.createStatement().executeUpdate(statement)
        finally:
            connection.close()


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def upsert_statement(table: str, staging: str, columns: Sequence[str], keys: Sequence[str]) -> str:
    """Source: PostgreSQL, INSERT, ON CONFLICT Clause. Keys that are null conflict with nothing, so such rows would be added again."""
    names = ", ".join(quoted(column) for column in columns)
    others = [quoted(column) for column in columns if column not in keys]
    change = ", ".join(f"{column} = EXCLUDED.{column}" for column in others)
    on = ", ".join(quoted(key) for key in keys)
    then = f"UPDATE SET {change}" if others else "NOTHING"
    return (
        f"INSERT INTO {table} ({names}) SELECT {names} FROM {staging} "  # noqa: S608  (names are checked or quoted)
        f"ON CONFLICT ({on}) DO {then}"
    )


def check_jdbc(parser: Parser, settings: argparse.Namespace) -> None:
    """End with a sentence if the jdbc sink could not be used so; the table's name stands in SQL as it is."""
    if settings.sink != "jdbc":
        return
    if not settings.jdbc_url:
        parser.error("--sink jdbc needs --jdbc-url")
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?", settings.output):
        parser.error(
            f"--output {settings.output!r} is no table; write NAME or SCHEMA.NAME of letters, digits and _"
        )


def add_jdbc(parser: Parser) -> None:
    add = parser.add_argument
    add("--jdbc-url", help="jdbc:postgresql://HOST/DATABASE, for the jdbc sink")
    add("--jdbc-user", help=f"its user; the password comes from the variable {PASSWORD}")
    add("--jdbc-driver", default=POSTGRESQL, help="class of its driver, which the image has")


def database_of(settings: argparse.Namespace) -> Database:
    """The database that a job's settings name."""
    return Database(
        settings.jdbc_url,
        settings.output,
        settings.jdbc_user,
        os.environ.get(PASSWORD),
        settings.jdbc_driver,
    )
