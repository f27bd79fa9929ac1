"""Commits the offsets of queries to a consumer group, so that monitoring can show their lag.

It works for queries of our source and of Spark's Kafka source.

spark.streams.addListener(logfleet_spark.GroupCommits("host:9092", "my-group", query="my-query"))

With our source the option `kafka.group.id` does the same without a listener, but misses the last
batch of a run: Spark's engine commits a batch only when it plans the next one.
"""

import json
import logging

from logfleet.client.offsets import TopicPartition
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from logfleet_spark.client_options import ClientOptions
from logfleet_spark.cluster import Cluster
from logfleet_spark.offsets import Offsets, from_json

log = logging.getLogger(__name__)


class GroupCommits(StreamingQueryListener):
    """query: name of the only query to commit for; None: all queries that read topics.

    A commit that fails is only logged as a warning.
    """

    def __init__(
        self,
        bootstrap: str,
        group: str,
        *,
        query: str | None = None,
        options: ClientOptions | None = None,
    ) -> None:
        self._bootstrap, self._group, self._query = bootstrap, group, query
        self._options = options
        self._last: dict[str, Offsets] = {}
        self._missing: dict[str, set[TopicPartition]] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing to do yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        if self._query is not None and progress.name != self._query:
            return
        ends: Offsets = {}
        for source in progress.sources:
            ends |= offsets_in(source.endOffset)
        key = str(progress.id)
        if ends and self._last.get(key) != ends:
            self._last[key] = ends
            # a new connection for each commit, as Spark may call from any thread
            with Cluster(self._bootstrap, self._options) as cluster:
                cluster.commit(self._group, ends, self._missing.setdefault(key, set()))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        self._last.pop(str(event.id), None)
        self._missing.pop(str(event.id), None)


def offsets_in(text: str) -> Offsets:
    """Return the offsets in a source's end; empty if the text has another format."""
    try:
        shaped = json.loads(text)
        return from_json(shaped)
    except (ValueError, TypeError, AttributeError):
        return {}
