"""Keys of groups (KIP-848, KIP-932, KIP-1071; Kafka: GroupConfig)."""

GROUP = """
consumer.assignment.interval.ms INT medium 1000 0.. | Least time between two assignments that the coordinator computes for a consumer group. | from group.consumer.assignment.interval.ms
consumer.heartbeat.interval.ms INT medium 5000 1.. | How often members of a consumer group send heartbeats. | from group.consumer.heartbeat.interval.ms
consumer.session.timeout.ms INT medium 45000 1.. | A member of a consumer group that is silent for this long is removed. | from group.consumer.session.timeout.ms
errors.deadletterqueue.copy.record.enable BOOLEAN medium false | Whether a record's key, value and headers are copied into the dead letter queue, not only its coordinates.
errors.deadletterqueue.topic.name STRING medium "" | Topic for records that a share group could not process; empty for none.
share.assignment.interval.ms INT medium 1000 0.. | Least time between two assignments that the coordinator computes for a share group. | from group.share.assignment.interval.ms
share.auto.offset.reset STRING medium latest offset-reset | Where a share group begins in a partition it has no state for: earliest, latest or by_duration with an ISO 8601 duration.
share.delivery.count.limit INT medium 5 2.. | How often a record is delivered to a share group before it is given up. | from group.share.delivery.count.limit
share.heartbeat.interval.ms INT medium 5000 1.. | How often members of a share group send heartbeats. | from group.share.heartbeat.interval.ms
share.isolation.level STRING medium read_uncommitted {read_committed,read_uncommitted} | Whether a share group sees records of transactions before they are committed.
share.partition.max.record.locks INT medium 2000 100.. | Records of one partition that a share group may hold at the same time. | from group.share.partition.max.record.locks
share.record.lock.duration.ms INT medium 30000 1000.. | How long a share consumer holds a record before others may get it. | from group.share.record.lock.duration.ms
share.renew.acknowledge.enable BOOLEAN medium true | Whether a share consumer may prolong its hold on a record.
share.session.timeout.ms INT medium 45000 1.. | A member of a share group that is silent for this long is removed. | from group.share.session.timeout.ms
streams.assignment.interval.ms INT medium 1000 0.. | Least time between two assignments that the coordinator computes for a streams group. | from group.streams.assignment.interval.ms
streams.assignor.name STRING medium null | Assignor of a streams group; without a value the first of group.streams.assignors. | from group.streams.assignors
streams.heartbeat.interval.ms INT medium 5000 1.. | How often members of a streams group send heartbeats. | from group.streams.heartbeat.interval.ms
streams.initial.rebalance.delay.ms INT medium 3000 0.. | An empty streams group waits this long for more members before its first assignment. | from group.streams.initial.rebalance.delay.ms
streams.num.standby.replicas INT medium 0 0.. | Standby copies of each task's state in a streams group. | from group.streams.num.standby.replicas
streams.rack.aware.assignment.tags LIST low "" | Client tags over whose values the standby tasks of a streams group are spread. | from group.streams.rack.aware.assignment.tags
streams.session.timeout.ms INT medium 45000 1.. | A member of a streams group that is silent for this long is removed. | from group.streams.session.timeout.ms
"""
