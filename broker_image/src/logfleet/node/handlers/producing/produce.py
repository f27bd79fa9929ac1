"""Produce: one batch per partition; no task is needed when nothing has to wait.

With one replica a batch is committed as soon as it is in the log, or on the disk where the topic
wants that. Only acks=all waits for followers (`logfleet.node.partitions.ack_queue`). `appending`
checks and appends each batch. `transactional_call` has what transactions add.
"""

from collections.abc import Awaitable
from typing import Any

from logfleet.controller.brokers.feature_level import transactions_allowed
from logfleet.node.dispatch import Handler, RequestContext
from logfleet.node.handlers.producing.call import TOPIC_IDS_SINCE, ProduceCall, Row, Topic, Work
from logfleet.node.handlers.producing.repeats import remember
from logfleet.node.handlers.producing.transactional_call import TransactionalCall
from logfleet.node.handlers.rooms import Rooms
from logfleet.wire.messages import ProduceRequest, ProduceResponse


def produce(
    rooms: Rooms, request: ProduceRequest, context: RequestContext
) -> ProduceResponse | Awaitable[ProduceResponse | None] | None:
    """Append every partition's batch.

    With acks=0 there is no answer, and any failure closes the connection.
    """
    table = rooms.partitions
    by_id = context.api_version >= TOPIC_IDS_SINCE
    topics: list[Topic] = []
    work: list[Work] = []
    for topic in request.topic_data:
        rows: list[Row] = []
        topics.append(Topic(name=topic.name, topic_id=topic.topic_id, partition_responses=rows))
        hosted = table.by_id.get(topic.topic_id) if by_id else table.by_name.get(topic.name)
        for data in topic.partition_data:
            partition = None if hosted is None else hosted.partitions.get(data.index)
            work.append((rows, topic, data, partition))
    if request.transactional_id is not None and transactions_allowed(rooms.metadata.image):
        return TransactionalCall(rooms, request, context, topics).append_all(work)
    answer = ProduceCall(rooms, request, context, topics).append_all(work)
    if len(work) == len(topics) == 1 and answer is not None and rows and not rows[0].error_code:
        remember(rooms, request, context)
    return answer


HANDLERS: dict[type, Handler[Any]] = {ProduceRequest: produce}
