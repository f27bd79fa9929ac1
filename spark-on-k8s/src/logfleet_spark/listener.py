"""Commits the offsets of queries to a consumer group, so that its lag can be watched.

It takes queries of our source and of Spark's own.

spark.streams.addListener(logfleet_spark.GroupCommits("host:9092", "my-group", query="my-query"))

The option `kafka.group.id` of our source does the same without it, but for the last batch of a run:
the engine commits a batch when it plans the next one.
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
    """query: the name of the only query to commit for; None: all that read topics.

    A commit that fails is a warning.
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
            # a cluster of its own for each: Spark calls from a thread that it chooses
            with Cluster(self._bootstrap, self._options) as cluster:
                cluster.commit(self._group, ends, self._missing.setdefault(key, set()))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        self._last.pop(str(event.id), None)
        self._missing.pop(str(event.id), None)


def offsets_in(text: str) -> Offsets:
    """The offsets in a source's end; none if it has another form."""
    try:
        shaped = json.loads(text)
        return from_json(shaped)
    except (ValueError, TypeError, AttributeError):
        return {}
