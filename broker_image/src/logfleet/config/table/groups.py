"""Keys of brokers: coordinators of classic, consumer, share and streams groups."""

GROUPS = """
errors.deadletterqueue.auto.create.topics.enable BOOLEAN cluster medium false | Whether missing dead letter queue topics are made.
errors.deadletterqueue.topic.name.prefix STRING cluster medium dlq. | What names of dead letter queue topics begin with.
group.consumer.assignment.interval.ms INT cluster medium 1000 0.. | Least time between two assignments of a consumer group.
group.consumer.assignors LIST ro medium uniform,range | Assignors on the broker's side, the first is the default.
group.consumer.heartbeat.interval.ms INT ro medium 5000 1.. | How often members of consumer groups send heartbeats.
group.consumer.max.assignment.interval.ms INT ro medium 15000 0.. | Largest value a group may set for consumer.assignment.interval.ms. | in config.group
group.consumer.max.heartbeat.interval.ms INT ro medium 15000 1.. | Largest value a group may set for consumer.heartbeat.interval.ms. | in config.group
group.consumer.max.session.timeout.ms INT ro medium 60000 1.. | Largest value a group may set for consumer.session.timeout.ms. | in config.group
group.consumer.max.size INT ro medium 2147483647 1.. | Members of one consumer group at most.
group.consumer.migration.policy STRING ro medium bidirectional {DISABLED,DOWNGRADE,UPGRADE,BIDIRECTIONAL}i | Which ways a group may change between the classic and the consumer protocol.
group.consumer.min.assignment.interval.ms INT ro medium 0 0.. | Smallest value a group may set for consumer.assignment.interval.ms. | in config.group
group.consumer.min.heartbeat.interval.ms INT ro medium 5000 1.. | Smallest value a group may set for consumer.heartbeat.interval.ms. | in config.group
group.consumer.min.session.timeout.ms INT ro medium 45000 1.. | Smallest value a group may set for consumer.session.timeout.ms. | in config.group
group.consumer.session.timeout.ms INT ro medium 45000 1.. | A silent member of a consumer group is removed after this time.
group.coordinator.append.linger.ms INT ro medium -1 -1.. | How long the group coordinator gathers records for one append; -1 adapts to the load.
group.coordinator.background.threads INT ro high 2 1.. | Threads that compute assignments; here one event loop does.
group.coordinator.cached.buffer.max.bytes INT cluster medium 1048588 524288.. | Largest append buffer that the group coordinator keeps for reuse.
group.coordinator.rebalance.protocols LIST ro medium classic,consumer,streams {consumer,classic,share,streams} | Group protocols that the broker serves.
group.coordinator.threads INT ro high 4 1.. | Threads of the group coordinator; here one event loop does.
group.initial.rebalance.delay.ms INT ro medium 3000 | An empty group waits this long for more members before its first rebalance. | in node.groups.group_coordinators
group.max.session.timeout.ms INT ro medium 1800000 | Largest session timeout that a member of a classic group may ask for. | in node.groups.group_coordinators
group.max.size INT ro medium 2147483647 1.. | Members of one classic group at most. | in node.groups.group_coordinators
group.min.session.timeout.ms INT ro medium 6000 | Smallest session timeout that a member of a classic group may ask for. | in node.groups.group_coordinators
group.share.assignment.interval.ms INT cluster medium 1000 0.. | Least time between two assignments of a share group.
group.share.assignors LIST ro medium simple | Assignors of share groups.
group.share.delivery.count.limit INT ro medium 5 2..10 | How often a record is delivered to a share group before it is given up.
group.share.heartbeat.interval.ms INT ro medium 5000 1.. | How often members of share groups send heartbeats.
group.share.max.assignment.interval.ms INT ro medium 15000 0.. | Largest value a group may set for share.assignment.interval.ms. | in config.group
group.share.max.delivery.count.limit INT ro medium 10 5..25 | Largest value a group may set for share.delivery.count.limit. | in config.group
group.share.max.heartbeat.interval.ms INT ro medium 15000 1.. | Largest value a group may set for share.heartbeat.interval.ms. | in config.group
group.share.max.partition.max.record.locks INT ro medium 4000 2000..10000 | Largest value a group may set for share.partition.max.record.locks. | in config.group
group.share.max.record.lock.duration.ms INT ro medium 60000 30000..3600000 | Largest value a group may set for share.record.lock.duration.ms. | in config.group
group.share.max.session.timeout.ms INT ro medium 60000 1.. | Largest value a group may set for share.session.timeout.ms. | in config.group
group.share.max.share.sessions INT ro medium 2000 1.. | Share sessions of one broker at most.
group.share.max.size INT ro medium 200 1..1000 | Members of one share group at most.
group.share.min.assignment.interval.ms INT ro medium 0 0.. | Smallest value a group may set for share.assignment.interval.ms. | in config.group
group.share.min.delivery.count.limit INT ro medium 2 2..5 | Smallest value a group may set for share.delivery.count.limit. | in config.group
group.share.min.heartbeat.interval.ms INT ro medium 5000 1.. | Smallest value a group may set for share.heartbeat.interval.ms. | in config.group
group.share.min.partition.max.record.locks INT ro medium 100 100..2000 | Smallest value a group may set for share.partition.max.record.locks. | in config.group
group.share.min.record.lock.duration.ms INT ro medium 15000 1000..30000 | Smallest value a group may set for share.record.lock.duration.ms. | in config.group
group.share.min.session.timeout.ms INT ro medium 45000 1.. | Smallest value a group may set for share.session.timeout.ms. | in config.group
group.share.partition.max.record.locks INT ro medium 2000 100..10000 | Records of one partition that a share group may hold at the same time.
group.share.record.lock.duration.ms INT ro medium 30000 1000..3600000 | How long a share consumer holds a record before others may get it.
group.share.session.timeout.ms INT ro medium 45000 1.. | A silent member of a share group is removed after this time.
group.streams.assignment.interval.ms INT cluster medium 1000 0.. | Least time between two assignments of a streams group.
group.streams.assignors LIST ro medium sticky | Assignors of streams groups, the first is the default. | in config.group
group.streams.heartbeat.interval.ms INT ro medium 5000 1.. | How often members of streams groups send heartbeats.
group.streams.initial.rebalance.delay.ms INT ro medium 3000 0.. | An empty streams group waits this long before its first assignment.
group.streams.max.assignment.interval.ms INT ro medium 15000 0.. | Largest value a group may set for streams.assignment.interval.ms. | in config.group
group.streams.max.heartbeat.interval.ms INT ro medium 15000 1.. | Largest value a group may set for streams.heartbeat.interval.ms. | in config.group
group.streams.max.session.timeout.ms INT ro medium 60000 1.. | Largest value a group may set for streams.session.timeout.ms. | in config.group
group.streams.max.size INT ro medium 2147483647 1.. | Members of one streams group at most.
group.streams.max.standby.replicas INT ro medium 2 0.. | Largest value a group may set for streams.num.standby.replicas. | in config.group
group.streams.min.assignment.interval.ms INT ro medium 0 0.. | Smallest value a group may set for streams.assignment.interval.ms. | in config.group
group.streams.min.heartbeat.interval.ms INT ro medium 5000 1.. | Smallest value a group may set for streams.heartbeat.interval.ms. | in config.group
group.streams.min.session.timeout.ms INT ro medium 45000 1.. | Smallest value a group may set for streams.session.timeout.ms. | in config.group
group.streams.num.standby.replicas INT ro medium 0 0.. | Standby copies of each task's state in a streams group.
group.streams.rack.aware.assignment.tags LIST ro low "" | Client tags over whose values standby tasks are spread.
group.streams.session.timeout.ms INT ro medium 45000 1.. | A silent member of a streams group is removed after this time.
group.streams.topology.description.plugin.class CLASS ro medium null | Java class that is given the topologies of streams groups.
offset.metadata.max.bytes INT ro high 4096 | Longest metadata text that may be committed with an offset. | in node.groups.group_coordinators
offsets.commit.timeout.ms INT ro high 5000 1.. | A commit that is not replicated within this time fails. | in node.groups.group_coordinators
offsets.load.buffer.size INT ro high 5242880 1.. | Bytes read at once when committed offsets are loaded.
offsets.retention.check.interval.ms LONG ro high 600000 1.. | How often committed offsets are checked for expiry. | in node.groups.group_coordinators
offsets.retention.minutes INT ro high 10080 1.. | Committed offsets are kept this long after their group was last in use. | in node.groups.group_coordinators
offsets.topic.compression.codec INT ro high 0 | Number of the codec that __consumer_offsets is written with.
offsets.topic.num.partitions INT ro high 50 1.. | Partitions of __consumer_offsets. | in node.groups.group_coordinators
offsets.topic.replication.factor SHORT ro high 3 1.. | Replicas of __consumer_offsets: if it is set never fewer, else as many as there are brokers, 3 at most; more are added as brokers come. | in controller.brokers.internal_topics
offsets.topic.segment.bytes INT ro high 104857600 1.. | Segment size of __consumer_offsets. | in node.groups.group_coordinators
share.coordinator.append.linger.ms INT ro medium -1 -1.. | How long the share coordinator gathers records for one append; -1 adapts to the load.
share.coordinator.cached.buffer.max.bytes INT cluster medium 1048588 524288.. | Largest append buffer that the share coordinator keeps for reuse.
share.coordinator.load.buffer.size INT ro high 5242880 1.. | Bytes read at once when share group state is loaded.
share.coordinator.snapshot.update.records.per.snapshot INT ro medium 500 0..500 | Changes of a share group's state between two snapshots of it.
share.coordinator.state.topic.compression.codec INT ro high 0 | Number of the codec that __share_group_state is written with.
share.coordinator.state.topic.min.isr SHORT ro high 2 1.. | In-sync replicas that writes to __share_group_state need.
share.coordinator.state.topic.num.partitions INT ro high 50 1.. | Partitions of __share_group_state.
share.coordinator.state.topic.replication.factor SHORT ro high 3 1.. | Replicas of __share_group_state.
share.coordinator.state.topic.segment.bytes INT ro high 104857600 1.. | Segment size of __share_group_state.
share.coordinator.threads INT ro medium 1 1.. | Threads of the share coordinator.
share.coordinator.write.timeout.ms INT ro high 5000 1.. | A write of share group state that is not replicated within this time fails.
"""
