"""Keys of brokers: who a broker is, the cluster, its controller."""

CLUSTER = """
alter.config.policy.class.name CLASS ro low null | Java class that judges changes of configurations. | refused unless default
auto.create.topics.enable BOOLEAN ro high true | Whether asking for a topic that does not exist makes it. | in node.handlers.metadata
auto.leader.rebalance.enable BOOLEAN ro high true | Whether leadership is moved back to preferred replicas from time to time. | in controller.terms.balance
broker.heartbeat.interval.ms INT ro medium 2000 | How often a broker reports to the controller; here its lease in the metadata store tells that it lives.
broker.id INT ro high -1 | Older name of node.id. | in config.broker
broker.rack STRING ro medium null | Failure zone of this broker; replicas of a partition are spread over zones. | in node.cluster.membership
broker.session.timeout.ms INT ro medium 9000 | A broker that is silent for this long is taken for dead; here its lease in the metadata store decides.
config.providers LIST cluster low "" | Names of what `${name:path:key}` in values stands for; of Kafka's classes EnvVarConfigProvider, FileConfigProvider and DirectoryConfigProvider are there, in server.properties only. | in cli.machine.config_providers
controlled.shutdown.enable BOOLEAN ro medium true | Whether a stopping broker hands over its leaderships; here it always does.
controller.listener.names LIST ro high "" | Listeners of Kafka's controller quorum; they are not opened, the metadata store takes its place. | in config.broker
controller.quorum.append.linger.ms INT ro medium 25 0.. | How long the leader of Kafka's controller quorum gathers records for one write.
controller.quorum.auto.join.enable BOOLEAN ro low false | Whether a node joins Kafka's controller quorum by itself.
controller.quorum.bootstrap.servers LIST ro high "" | Where Kafka's controller quorum is found.
controller.quorum.election.backoff.max.ms INT ro high 1000 0.. | Longest pause before another election of Kafka's controller quorum.
controller.quorum.election.timeout.ms INT ro high 1000 0.. | Time for one election of Kafka's controller quorum.
controller.quorum.fetch.max.bytes INT ro low 1048576 1.. | Bytes of one fetch within Kafka's controller quorum.
controller.quorum.fetch.snapshot.max.bytes INT ro low 1048576 1.. | Bytes of one fetch of a snapshot within Kafka's controller quorum.
controller.quorum.fetch.timeout.ms INT ro high 2000 0.. | Time without a fetch after which Kafka's controller quorum elects again.
controller.quorum.request.timeout.ms INT ro medium 2000 0.. | Longest wait for an answer within Kafka's controller quorum.
controller.quorum.retry.backoff.ms INT ro low 20 0.. | Pause before a request within Kafka's controller quorum is sent again.
controller.quorum.voters LIST ro high "" | Voters of Kafka's controller quorum as id@host:port.
controller.socket.timeout.ms INT ro medium 30000 | Timeout of connections to Kafka's controller.
create.topic.policy.class.name CLASS ro low null | Java class that judges new topics. | refused unless default
default.replication.factor INT ro medium 1 | Replicas of topics that are made automatically or with -1. | in controller.changes.topics
delete.topic.enable BOOLEAN ro high true | Whether topics may be deleted. | in node.handlers.admin.topics
initial.broker.registration.timeout.ms INT ro medium 60000 | Time within which a starting broker must be registered.
kafka.metrics.polling.interval.secs INT ro low 10 1.. | How often Kafka's older metrics reporters are fed.
kafka.metrics.reporters LIST ro low "" | Java classes that are given Kafka's older metrics.
leader.imbalance.check.interval.seconds LONG ro high 300 1.. | How often leadership is compared with the preferred replicas; one that leads again has been in sync for 30 s. | in controller.terms.balance
metadata.log.dir STRING ro high null | Directory of Kafka's metadata log.
metadata.log.max.record.bytes.between.snapshots LONG ro high 20971520 1.. | Bytes of Kafka's metadata log between two snapshots.
metadata.log.max.snapshot.interval.ms LONG ro high 3600000 0.. | Time between two snapshots of Kafka's metadata log.
metadata.log.segment.bytes INT ro high 1073741824 8388608.. | Segment size of Kafka's metadata log.
metadata.log.segment.ms LONG ro high 604800000 | Segment age of Kafka's metadata log.
metadata.max.idle.interval.ms INT ro low 500 0.. | How often an idle controller of Kafka writes to its metadata log.
metadata.max.retention.bytes LONG ro high 104857600 | Size of Kafka's metadata log and its snapshots.
metadata.max.retention.ms LONG ro high 604800000 | Age of Kafka's metadata log and its snapshots.
metric.reporters LIST cluster low org.apache.kafka.common.metrics.JmxReporter | Java classes that are given metrics; here logfleet.admin.listener serves them.
metrics.num.samples INT ro low 2 1.. | Samples that Kafka's metrics keep.
metrics.recording.level STRING ro low INFO | Least level of the metrics that Kafka records.
metrics.sample.window.ms LONG ro low 30000 1.. | Length of a sample of Kafka's metrics.
node.id INT ro high 1 0.. | Id of this broker; it never changes while its data exists. | in node.broker
num.partitions INT ro medium 1 1.. | Partitions of topics that are made automatically or with -1. | in controller.changes.topics
process.roles LIST ro high broker {broker,controller} | Must contain broker; every broker can be elected controller. | in config.broker
"""
