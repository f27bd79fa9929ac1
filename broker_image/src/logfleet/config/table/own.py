"""Keys of topics and brokers that are Logfleet's own."""

OWN_OF_TOPICS = """
logfleet.record.validation STRING medium header {header,full} | How deep a batch is looked into before it is acknowledged: header believes header and checksum about the records, full reads every record, as Kafka does, at 6 to 20 times the processor time (docs/internals/performance.md); past a batch that no reader understands get `logfleet records delete TOPIC -p N --before OFFSET --execute` and `logfleet group reset-offsets`. | in node.partitions.log_configs | from logfleet.record.validation
"""

OWN = """
logfleet.admin.listener STRING ro medium 127.0.0.1:9644 | host:port of the HTTP port for health, metrics, decisions and may-i; empty for none. Where nothing is set and 9644 is taken, a free port of 127.0.0.1 is; `logfleet config describe broker ID --all` shows it. | in node.metrics.observation
logfleet.cluster.name STRING ro medium logfleet | Name of the cluster, which its keys in etcd begin with. | in store.opening
logfleet.disk.reserve.bytes LONG ro medium 16777216 0.. | What is kept free on the disk of each log directory, a 20th of it at most, for what makes room when it is full. | in node.disks
logfleet.etcd.ca.location STRING ro medium null | PEM file with the certificates that sign etcd's. | in store.opening
logfleet.etcd.cert.location STRING ro medium null | PEM file with the client certificate that etcd is shown. | in store.opening
logfleet.etcd.endpoints LIST ro medium "" | Addresses of etcd as host:port. | in store.opening
logfleet.etcd.key.location STRING ro medium null | PEM file with the key of the client certificate. | in store.opening
logfleet.feature.level.max INT ro low 3 1..3 | Highest level of the feature logfleet.version that this broker supports. Set it lower only to rehearse an upgrade or a rollback with one version: the cluster's level can then not be raised above it, as if this broker were of a former version. | in node.cluster.stored_metadata
logfleet.metadata.store STRING ro medium sqlite {sqlite,etcd} | Where cluster metadata lives: sqlite for one broker, etcd for a fleet. | in store.opening
logfleet.metrics.series.max INT ro medium 1000 0.. | Partitions, topics and offsets of groups, of each kind, that metrics tell one by one; of a kind of which there are more only totals. | in node.metrics.observation
logfleet.partitions.max INT cluster medium -1 -1.. | Partitions that the cluster may have, internal topics included; -1 for no limit. | in controller.changes.topics
logfleet.reassignment.throttled.rate LONG cluster medium 9223372036854775807 1.. | Bytes per second by which replicas that reassignments add to a broker come nearer to their leaders at most, unless a replication throttle lists them. | in config.throttle_keys
logfleet.record.validation STRING cluster medium header {header,full}
logfleet.replication.throttle.yields BOOLEAN ro medium true | Whether replication throttles give way while producers on this broker are slower than without copying: down to an eighth of the rate. | in quotas.replication_throttle
logfleet.topics.max INT cluster medium -1 -1.. | Topics that the cluster may have, internal ones included; -1 for no limit. | in controller.changes.topics
"""
