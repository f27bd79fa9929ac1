"""The results of a job, as other programs see them while it runs and afterwards."""

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pandas as pd
import psycopg
from confluent_kafka import Consumer, IsolationLevel, KafkaError, Message, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from e2e.harness.postgres import Postgres
from e2e.harness.topics import ends

PATIENCE_S = 60.0
HIDDEN = re.compile(r"(^|/)[_.]")
"""Files that readers of Parquet ignore."""


@dataclass(frozen=True, slots=True)
class Folder:
    """A table in a folder: Delta Lake if it has a log, else plain Parquet."""

    root: Path

    def begun(self) -> object:
        """Return the number of files, including those of a batch that is not committed."""
        return len(self._files())

    def committed(self) -> object:
        if log := self._log():
            return sum("add" in actions for actions in log)
        return frozenset(path for path in self._files() if not HIDDEN.search(path))

    def _files(self) -> list[str]:
        """Return the files below the root; some may vanish meanwhile."""
        return [
            os.path.relpath(os.path.join(folder, name), self.root)  # noqa: PTH118
            for folder, _, names in os.walk(self.root)
            for name in names
            if name.endswith(".parquet")
        ]

    def _log(self) -> list[dict[str, dict[str, Any]]]:
        """Return the actions of each commit to a Delta table, by file.

        They are `add` for a new file and `remove` for a dropped one. Source: Delta Lake's
        PROTOCOL.md, "Actions".
        """
        commits = []
        for commit in sorted((self.root / "_delta_log").glob("*.json")):
            actions: dict[str, dict[str, Any]] = {}
            for line in commit.read_text().splitlines():
                for what, action in json.loads(line).items():
                    actions.setdefault(what, {})[action.get("path", "")] = action
            commits.append(actions)
        return commits

    def rows(self) -> pd.DataFrame:
        """Return the rows, without the columns that are named in folders."""
        if not (log := self._log()):
            return pd.read_parquet(self.root)
        files: set[str] = set()
        for actions in log:
            files -= actions.get("remove", {}).keys()
            files |= actions.get("add", {}).keys()
        return pd.concat([pd.read_parquet(self.root / unquote(file)) for file in files])


@dataclass(frozen=True, slots=True)
class Table:
    """A table in PostgreSQL to which a job writes."""

    server: Postgres
    name: str

    def begun(self) -> object:
        """Return whether the transaction of a batch is open."""
        return (
            self._all(
                "SELECT FROM pg_stat_activity WHERE application_name = 'logfleet' AND xact_start IS NOT NULL"
            )
            != []
        )

    def committed(self) -> object:
        return self._all(f"SELECT count(*), max(xmin::text::bigint) FROM {self.name}")

    def rows(self) -> pd.DataFrame:
        with psycopg.connect(self.server.url) as connection:
            cursor = connection.execute(f"SELECT * FROM {self.name}")
            names = [column.name for column in cursor.description or ()]
            return pd.DataFrame(cursor.fetchall(), columns=names)

    def _all(self, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.server.url) as connection:
            return connection.execute(query.encode()).fetchall()


@dataclass(frozen=True, slots=True)
class Topics:
    """Topics to which a job writes. They have no commits: a batch appears record by record."""

    bootstrap: str
    names: tuple[str, ...]

    def begun(self) -> object:
        return sum(end for name in self.names for _, end in ends(self.bootstrap, name))

    def committed(self) -> object:
        return None

    def rows(self) -> pd.DataFrame:
        """Return (key, value, headers by name) of each record, in each partition's order."""
        found = []
        consumer = Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": "kills", "log_level": 3}
        )
        try:
            for name in self.names:
                for partition, (first, end) in enumerate(ends(self.bootstrap, name)):
                    consumer.assign([TopicPartition(name, partition, first)])
                    for record in _taken(consumer, end - first):
                        assert record.error() is None, record.error()
                        headers = dict(record.headers() or ())
                        found.append((record.key(), record.value(), headers))
        finally:
            consumer.close()
        return pd.DataFrame(found, columns=["key", "value", "headers"])


@dataclass(frozen=True, slots=True)
class CommittedTopics(Topics):
    """Topics that a job writes in transactions, as a reader of committed records sees them."""

    def committed(self) -> object:
        """Return the sum of the last stable offsets."""
        # A client that knew a broker before it was killed would ask with the old leader epoch.
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 3})
        wanted = {
            TopicPartition(name, index): OffsetSpec.latest()  # type: ignore[no-untyped-call]
            for name in self.names
            for index in range(len(ends(self.bootstrap, name)))
        }
        found = admin.list_offsets(wanted, isolation_level=IsolationLevel.READ_COMMITTED)
        return sum(each.result(PATIENCE_S).offset for each in found.values())

    def rows(self) -> pd.DataFrame:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "kills",
                "log_level": 3,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            }
        )
        found = []
        try:
            for name in self.names:
                for index in range(len(ends(self.bootstrap, name))):
                    consumer.assign([TopicPartition(name, index, 0)])
                    found += [
                        (record.key(), record.value(), dict(record.headers() or ()))
                        for record in _until_end(consumer)
                    ]
        finally:
            consumer.close()
        return pd.DataFrame(found, columns=["key", "value", "headers"])


def _until_end(consumer: Consumer) -> Iterator[Message]:
    """Return the records up to the end of the one assigned partition."""
    while True:
        some = consumer.consume(10_000, PATIENCE_S)
        assert some, "the end did not come"
        for record in some:
            error = record.error()
            if error is None:
                yield record
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001  (its public name)
                return
            else:
                raise AssertionError(error)


def _taken(consumer: Consumer, count: int) -> Iterator[Message]:
    """Return `count` records. Raises AssertionError if fewer arrive."""
    while count > 0:
        some = consumer.consume(min(count, 10_000), PATIENCE_S)
        assert some, f"{count} records did not come"
        count -= len(some)
        yield from some
