"""Keys of brokers: replication."""

REPLICATION = """
alter.log.dirs.replication.quota.window.num INT ro low 11 1.. | Windows over which the rate of moves between data directories is measured. | in quotas.replication_throttle
alter.log.dirs.replication.quota.window.size.seconds INT ro low 1 1.. | Length of one such window. | in quotas.replication_throttle
follower.replication.throttled.rate LONG cluster? medium 9223372036854775807 0.. | Bytes per second that throttled followers fetch at most. | in config.throttle_keys
leader.replication.throttled.rate LONG cluster? medium 9223372036854775807 0.. | Bytes per second that leaders serve to throttled followers at most. | in config.throttle_keys
num.replica.fetchers INT cluster high 1 1.. | Connections by which a broker follows each other broker; here one carries all partitions, whatever this says.
replica.alter.log.dirs.io.max.bytes.per.second LONG cluster? medium 9223372036854775807 0.. | Bytes per second that are moved between data directories at most. | in config.throttle_keys
replica.fetch.backoff.ms INT ro medium 1000 0.. | Pause of a follower after a failed fetch. | in node.replication.replica_fetcher
replica.fetch.max.bytes INT ro medium 1048576 0.. | Bytes of one partition that a follower fetches at once. | in node.replication.fetch_requests
replica.fetch.min.bytes INT ro high 1 | Bytes that a follower waits for. | in node.replication.fetch_requests
replica.fetch.response.max.bytes INT ro medium 10485760 0.. | Bytes of one answer to a follower. | in node.replication.fetch_requests
replica.fetch.wait.max.ms INT ro high 500 | How long a follower waits for new records. | in node.replication.replica_fetcher
replica.lag.time.max.ms LONG ro high 30000 | A follower that has not caught up for this long is not in sync any more. | in node.partitions.leadership
replica.selector.class STRING ro medium null | Rule by which a consumer is sent to a follower nearby: Kafka's RackAwareReplicaSelector, or none. | in node.handlers.fetch_rows
replica.socket.receive.buffer.bytes INT ro high 65536 | Receive buffer of a follower's socket; here the system decides.
replica.socket.timeout.ms INT ro high 30000 | Longest wait of a follower for an answer. | in node.replication.replica_fetcher
replication.quota.window.num INT ro low 11 1.. | Windows over which the rates of replication are measured. | in quotas.replication_throttle
replication.quota.window.size.seconds INT ro low 1 1.. | Length of one such window. | in quotas.replication_throttle
"""
