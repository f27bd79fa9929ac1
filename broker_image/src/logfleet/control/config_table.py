"""Kafka's configuration keys as data, one line each; `config_keys` gives them their meaning.

Names, types, update modes, defaults and valid values are those of Apache Kafka 4.4.0 (its LogConfig, AbstractKafkaConfig
and DynamicBrokerConfig classes); keys marked internal there are left out. Other defaults than Kafka's: listeners (loopback, not
every interface), log.dir, node.id, process.roles, controller.listener.names, offsets.topic.replication.factor (this version
keeps one replica). Dynamic there, read at start only here: listeners, listener.security.protocol.map,
producer.id.expiration.ms. Keys that start with `logfleet.` are ours.

Line: name TYPE [mode] default [valid] [| sentence]. Mode, broker keys only: ro (server.properties only), per-broker or
cluster (dynamic). Default: `null` is no value, `""` the empty text. Valid: `low..high` (either end may be absent), `|x` one
more value, `{a,b}` a choice, `{a,b}i` in any case. The sentence is there if and only if the key has an effect in this version.
"""

TOPIC = """
cleanup.policy LIST delete {compact,delete} | What happens to old segments: delete removes them; compact is stored, its cleaner comes later.
compression.gzip.level INT -1 1..9|-1
compression.lz4.level INT 9 1..17
compression.type STRING producer {uncompressed,zstd,lz4,snappy,gzip,producer}
compression.zstd.level INT 3 -131072..22
delete.retention.ms LONG 86400000 0..
errors.deadletterqueue.group.enable BOOLEAN false
file.delete.delay.ms LONG 60000 0.. | Deleted segment files stay on disk this long.
flush.messages LONG 9223372036854775807 1..
flush.ms LONG 9223372036854775807 0..
follower.replication.throttled.replicas LIST ""
index.interval.bytes INT 4096 0.. | One index entry per this many bytes of log.
leader.replication.throttled.replicas LIST ""
local.retention.bytes LONG -2 -2..
local.retention.ms LONG -2 -2..
max.compaction.lag.ms LONG 9223372036854775807 1..
max.decompressed.message.bytes INT 2147483639 1..2147483639
max.message.bytes INT 1048588 0.. | Largest record batch, as sent (compressed).
message.timestamp.after.max.ms LONG 3600000 0.. | How far a record's timestamp may lie in the future.
message.timestamp.before.max.ms LONG 9223372036854775807 0.. | How far a record's timestamp may lie in the past.
message.timestamp.type STRING CreateTime {CreateTime,LogAppendTime} | Timestamps are the producer's (CreateTime) or the broker's (LogAppendTime).
min.cleanable.dirty.ratio DOUBLE 0.5 0..1
min.compaction.lag.ms LONG 0 0..
min.insync.replicas INT 1 1.. | In-sync replicas that a write with acks=all needs.
preallocate BOOLEAN false
remote.copy.lag.bytes LONG -1 -1..
remote.copy.lag.ms LONG 0 -1..
remote.log.copy.disable BOOLEAN false
remote.log.delete.on.disable BOOLEAN false
remote.storage.enable BOOLEAN false
retention.bytes LONG -1 | Oldest segments are deleted when a partition grows beyond this; -1: never.
retention.ms LONG 604800000 -1.. | Segments are deleted when all their records are older; -1: never.
segment.bytes INT 1073741824 1048576.. | A segment file is closed at this size.
segment.index.bytes INT 10485760 4.. | Size of an index file; a full index closes the segment.
segment.jitter.ms LONG 0 0.. | Random part taken off segment.ms, so that segments do not roll together.
segment.ms LONG 604800000 1.. | A segment is closed at this age, also when it is small.
unclean.leader.election.enable BOOLEAN false
"""

BROKER = """
add.partitions.to.txn.retry.backoff.max.ms INT ro 100 0..
add.partitions.to.txn.retry.backoff.ms INT ro 20 1..
advertised.listeners LIST ro null | Addresses given to clients and other brokers; by default those of listeners.
alter.config.policy.class.name CLASS ro null
alter.log.dirs.replication.quota.window.num INT ro 11 1..
alter.log.dirs.replication.quota.window.size.seconds INT ro 1 1..
authorizer.class.name STRING ro ""
auto.create.topics.enable BOOLEAN ro true | Whether asking for a topic that does not exist creates it.
auto.leader.rebalance.enable BOOLEAN ro true
background.threads INT cluster 10 1..
broker.heartbeat.interval.ms INT ro 2000
broker.id INT ro -1 | Older name of node.id.
broker.rack STRING ro null | Failure zone of this broker; replicas of a partition are spread over zones.
broker.session.timeout.ms INT ro 9000
client.quota.callback.class CLASS ro null
compression.gzip.level INT cluster -1 1..9|-1
compression.lz4.level INT cluster 9 1..17
compression.type STRING cluster producer {uncompressed,zstd,lz4,snappy,gzip,producer}
compression.zstd.level INT cluster 3 -131072..22
config.providers LIST cluster ""
connection.failed.authentication.delay.ms INT ro 100 0..
connections.max.idle.ms LONG ro 600000 | A connection without requests for this long is closed.
connections.max.reauth.ms LONG ro 0
controlled.shutdown.enable BOOLEAN ro true
controller.listener.names LIST ro "" | Listeners of Kafka's controller quorum; they are not opened, the metadata store takes its place.
controller.quorum.append.linger.ms INT ro 25 0..
controller.quorum.auto.join.enable BOOLEAN ro false
controller.quorum.bootstrap.servers LIST ro ""
controller.quorum.election.backoff.max.ms INT ro 1000 0..
controller.quorum.election.timeout.ms INT ro 1000 0..
controller.quorum.fetch.max.bytes INT ro 1048576 1..
controller.quorum.fetch.snapshot.max.bytes INT ro 1048576 1..
controller.quorum.fetch.timeout.ms INT ro 2000 0..
controller.quorum.request.timeout.ms INT ro 2000 0..
controller.quorum.retry.backoff.ms INT ro 20 0..
controller.quorum.voters LIST ro ""
controller.quota.window.num INT ro 11 1..
controller.quota.window.size.seconds INT ro 1 1..
controller.socket.timeout.ms INT ro 30000
cordoned.log.dirs LIST per-broker ""
create.topic.policy.class.name CLASS ro null
default.replication.factor INT ro 1 | Replicas of automatically created topics and of those created with -1.
delegation.token.expiry.check.interval.ms LONG ro 3600000 1..
delegation.token.expiry.time.ms LONG ro 86400000 1..
delegation.token.max.lifetime.ms LONG ro 604800000 1..
delegation.token.secret.key PASSWORD ro null
delete.records.purgatory.purge.interval.requests INT ro 1
delete.topic.enable BOOLEAN ro true | Whether DeleteTopics is allowed.
early.start.listeners LIST ro null
errors.deadletterqueue.auto.create.topics.enable BOOLEAN cluster false
errors.deadletterqueue.topic.name.prefix STRING cluster dlq.
fetch.max.bytes INT ro 57671680 1024.. | Upper bound of one fetch response; the first batch always fits.
fetch.purgatory.purge.interval.requests INT ro 1000
follower.fetch.last.tiered.offset.enable BOOLEAN cluster false
follower.replication.throttled.rate LONG cluster 9223372036854775807 0..
group.consumer.assignment.interval.ms INT cluster 1000 0..
group.consumer.assignors LIST ro uniform,range
group.consumer.heartbeat.interval.ms INT ro 5000 1..
group.consumer.max.assignment.interval.ms INT ro 15000 0..
group.consumer.max.heartbeat.interval.ms INT ro 15000 1..
group.consumer.max.session.timeout.ms INT ro 60000 1..
group.consumer.max.size INT ro 2147483647 1..
group.consumer.migration.policy STRING ro bidirectional {DISABLED,DOWNGRADE,UPGRADE,BIDIRECTIONAL}i
group.consumer.min.assignment.interval.ms INT ro 0 0..
group.consumer.min.heartbeat.interval.ms INT ro 5000 1..
group.consumer.min.session.timeout.ms INT ro 45000 1..
group.consumer.session.timeout.ms INT ro 45000 1..
group.coordinator.append.linger.ms INT ro -1 -1..
group.coordinator.background.threads INT ro 2 1..
group.coordinator.cached.buffer.max.bytes INT cluster 1048588 524288..
group.coordinator.rebalance.protocols LIST ro classic,consumer,streams {consumer,classic,share,streams}
group.coordinator.threads INT ro 4 1..
group.initial.rebalance.delay.ms INT ro 3000 | An empty group waits this long for more members before its first rebalance.
group.max.session.timeout.ms INT ro 1800000 | Largest session timeout a group member may ask for.
group.max.size INT ro 2147483647 1.. | Members of one group at most.
group.min.session.timeout.ms INT ro 6000 | Smallest session timeout a group member may ask for.
group.share.assignment.interval.ms INT cluster 1000 0..
group.share.assignors LIST ro simple
group.share.delivery.count.limit INT ro 5 2..10
group.share.heartbeat.interval.ms INT ro 5000 1..
group.share.max.assignment.interval.ms INT ro 15000 0..
group.share.max.delivery.count.limit INT ro 10 5..25
group.share.max.heartbeat.interval.ms INT ro 15000 1..
group.share.max.partition.max.record.locks INT ro 4000 2000..10000
group.share.max.record.lock.duration.ms INT ro 60000 30000..3600000
group.share.max.session.timeout.ms INT ro 60000 1..
group.share.max.share.sessions INT ro 2000 1..
group.share.max.size INT ro 200 1..1000
group.share.min.assignment.interval.ms INT ro 0 0..
group.share.min.delivery.count.limit INT ro 2 2..5
group.share.min.heartbeat.interval.ms INT ro 5000 1..
group.share.min.partition.max.record.locks INT ro 100 100..2000
group.share.min.record.lock.duration.ms INT ro 15000 1000..30000
group.share.min.session.timeout.ms INT ro 45000 1..
group.share.partition.max.record.locks INT ro 2000 100..10000
group.share.record.lock.duration.ms INT ro 30000 1000..3600000
group.share.session.timeout.ms INT ro 45000 1..
group.streams.assignment.interval.ms INT cluster 1000 0..
group.streams.assignors LIST ro sticky
group.streams.heartbeat.interval.ms INT ro 5000 1..
group.streams.initial.rebalance.delay.ms INT ro 3000 0..
group.streams.max.assignment.interval.ms INT ro 15000 0..
group.streams.max.heartbeat.interval.ms INT ro 15000 1..
group.streams.max.session.timeout.ms INT ro 60000 1..
group.streams.max.size INT ro 2147483647 1..
group.streams.max.standby.replicas INT ro 2 0..
group.streams.min.assignment.interval.ms INT ro 0 0..
group.streams.min.heartbeat.interval.ms INT ro 5000 1..
group.streams.min.session.timeout.ms INT ro 45000 1..
group.streams.num.standby.replicas INT ro 0 0..
group.streams.rack.aware.assignment.tags LIST ro ""
group.streams.session.timeout.ms INT ro 45000 1..
group.streams.topology.description.plugin.class CLASS ro null
initial.broker.registration.timeout.ms INT ro 60000
inter.broker.listener.name STRING ro null | Listener on which brokers talk to each other.
kafka.metrics.polling.interval.secs INT ro 10 1..
kafka.metrics.reporters LIST ro ""
leader.imbalance.check.interval.seconds LONG ro 300 1..
leader.replication.throttled.rate LONG cluster 9223372036854775807 0..
listener.security.protocol.map STRING ro SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT | Security protocol of each listener name; this version serves PLAINTEXT.
listeners LIST ro PLAINTEXT://127.0.0.1:9092 | Addresses to listen on: NAME://host:port, an empty host means all interfaces.
log.cleaner.backoff.ms LONG cluster 15000 0..
log.cleaner.dedupe.buffer.size LONG cluster 134217728
log.cleaner.delete.retention.ms LONG cluster 86400000 0..
log.cleaner.enable BOOLEAN ro true
log.cleaner.io.buffer.load.factor DOUBLE cluster 0.9
log.cleaner.io.buffer.size INT cluster 524288 0..
log.cleaner.io.max.bytes.per.second DOUBLE cluster 1.7976931348623157E308
log.cleaner.max.compaction.lag.ms LONG cluster 9223372036854775807 1..
log.cleaner.min.cleanable.ratio DOUBLE cluster 0.5 0..1
log.cleaner.min.compaction.lag.ms LONG cluster 0 0..
log.cleaner.threads INT cluster 1 0..
log.cleanup.policy LIST cluster delete {compact,delete} | Default of the topic key cleanup.policy.
log.dir LIST ro logfleet-data | Data directory, used when log.dirs is not set.
log.dir.failure.timeout.ms LONG ro 30000 1..
log.dirs LIST ro null | Data directories, separated by commas.
log.flush.interval.messages LONG cluster 9223372036854775807 1..
log.flush.interval.ms LONG cluster null
log.flush.offset.checkpoint.interval.ms INT ro 60000 0.. | How often recovery points are written.
log.flush.scheduler.interval.ms LONG ro 9223372036854775807
log.flush.start.offset.checkpoint.interval.ms INT ro 60000 0.. | How often log start offsets are written.
log.index.interval.bytes INT cluster 4096 0.. | Default of the topic key index.interval.bytes.
log.index.size.max.bytes INT cluster 10485760 4.. | Default of the topic key segment.index.bytes.
log.local.retention.bytes LONG cluster -2 -2..
log.local.retention.ms LONG cluster -2 -2..
log.message.timestamp.after.max.ms LONG cluster 3600000 0.. | Default of the topic key message.timestamp.after.max.ms.
log.message.timestamp.before.max.ms LONG cluster 9223372036854775807 0.. | Default of the topic key message.timestamp.before.max.ms.
log.message.timestamp.type STRING cluster CreateTime {CreateTime,LogAppendTime} | Default of the topic key message.timestamp.type.
log.preallocate BOOLEAN cluster false
log.remote.copy.lag.bytes LONG cluster -1 -1..
log.remote.copy.lag.ms LONG cluster 0 -1..
log.retention.bytes LONG cluster -1 | Default of the topic key retention.bytes.
log.retention.check.interval.ms LONG ro 300000 1.. | How often logs are checked for expired segments.
log.retention.hours INT ro 168 | Default of the topic key retention.ms, in hours; used when .minutes and .ms are not set.
log.retention.minutes INT ro null | Default of the topic key retention.ms, in minutes; used when .ms is not set.
log.retention.ms LONG cluster null | Default of the topic key retention.ms.
log.roll.hours INT ro 168 1.. | Default of the topic key segment.ms, in hours; used when .ms is not set.
log.roll.jitter.hours INT ro 0 0.. | Default of the topic key segment.jitter.ms, in hours; used when .ms is not set.
log.roll.jitter.ms LONG cluster null | Default of the topic key segment.jitter.ms.
log.roll.ms LONG cluster null | Default of the topic key segment.ms.
log.segment.bytes INT cluster 1073741824 1048576.. | Default of the topic key segment.bytes.
log.segment.delete.delay.ms LONG cluster 60000 0.. | Default of the topic key file.delete.delay.ms.
logfleet.admin.listener STRING ro "" | host:port of the HTTP port for health and metrics; empty: none.
logfleet.cluster.name STRING ro logfleet | Name of the cluster; prefix of its keys in etcd.
logfleet.etcd.ca.location STRING ro null | PEM file with the certificates that sign etcd's.
logfleet.etcd.cert.location STRING ro null | PEM file with the client certificate shown to etcd.
logfleet.etcd.endpoints LIST ro "" | Addresses of etcd, host:port, separated by commas.
logfleet.etcd.key.location STRING ro null | PEM file with the key of the client certificate.
logfleet.metadata.store STRING ro sqlite {sqlite,etcd} | Where cluster metadata lives: sqlite (one broker) or etcd (a fleet).
max.connection.creation.rate INT cluster 2147483647 0..
max.connections INT cluster 2147483647 0..
max.connections.per.ip INT cluster 2147483647 0..
max.connections.per.ip.overrides STRING cluster ""
max.decompressed.message.bytes INT cluster 2147483639 1..2147483639
max.incremental.fetch.session.cache.slots INT ro 1000 0..
max.request.partition.size.limit INT ro 2000 1.. | Partitions in one DescribeTopicPartitions response at most.
message.max.bytes INT cluster 1048588 0.. | Default of the topic key max.message.bytes.
metadata.log.dir STRING ro null
metadata.log.max.record.bytes.between.snapshots LONG ro 20971520 1..
metadata.log.max.snapshot.interval.ms LONG ro 3600000 0..
metadata.log.segment.bytes INT ro 1073741824 8388608..
metadata.log.segment.ms LONG ro 604800000
metadata.max.idle.interval.ms INT ro 500 0..
metadata.max.retention.bytes LONG ro 104857600
metadata.max.retention.ms LONG ro 604800000
metric.reporters LIST cluster org.apache.kafka.common.metrics.JmxReporter
metrics.num.samples INT ro 2 1..
metrics.recording.level STRING ro INFO
metrics.sample.window.ms LONG ro 30000 1..
min.insync.replicas INT cluster 1 1.. | Default of the topic key min.insync.replicas.
node.id INT ro 1 0.. | Id of this broker; never changes while its data exists.
num.io.threads INT cluster 8 1..
num.network.threads INT cluster 3 1..
num.partitions INT ro 1 1.. | Partitions of automatically created topics and of those created with -1.
num.recovery.threads.per.data.dir INT cluster 2 1..
num.replica.alter.log.dirs.threads INT ro null
num.replica.fetchers INT cluster 1 1..
offset.metadata.max.bytes INT ro 4096 | Longest metadata text of a committed offset.
offsets.commit.timeout.ms INT ro 5000 1.. | A commit that is not replicated within this time fails.
offsets.load.buffer.size INT ro 5242880 1..
offsets.retention.check.interval.ms LONG ro 600000 1.. | How often committed offsets are checked for expiry.
offsets.retention.minutes INT ro 10080 1.. | Committed offsets of an empty group are kept this long.
offsets.topic.compression.codec INT ro 0
offsets.topic.num.partitions INT ro 50 1.. | Partitions of __consumer_offsets.
offsets.topic.replication.factor SHORT ro 1 1.. | Replicas of __consumer_offsets; 1 in this version.
offsets.topic.segment.bytes INT ro 104857600 1.. | Segment size of __consumer_offsets.
principal.builder.class CLASS per-broker org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder
process.roles LIST ro broker {broker,controller} | Must contain broker; every broker can be elected controller.
producer.id.expiration.ms INT ro 86400000 1.. | An idempotent producer's state is kept this long after its last write.
producer.purgatory.purge.interval.requests INT ro 1000
queued.max.request.bytes LONG ro -1
queued.max.requests INT ro 500 1..
quota.window.num INT ro 11 1..
quota.window.size.seconds INT ro 1 1..
remote.fetch.max.wait.ms INT cluster 500 1..
remote.list.offsets.request.timeout.ms LONG cluster 30000 1..
remote.log.index.file.cache.total.size.bytes LONG cluster 1073741824 1..
remote.log.manager.copier.thread.pool.size INT cluster 10 1..
remote.log.manager.copy.max.bytes.per.second LONG cluster 9223372036854775807 1..
remote.log.manager.copy.quota.window.num INT ro 11 1..
remote.log.manager.copy.quota.window.size.seconds INT ro 1 1..
remote.log.manager.expiration.thread.pool.size INT cluster 10 1..
remote.log.manager.fetch.max.bytes.per.second LONG cluster 9223372036854775807 1..
remote.log.manager.fetch.quota.window.num INT ro 11 1..
remote.log.manager.fetch.quota.window.size.seconds INT ro 1 1..
remote.log.manager.follower.thread.pool.size INT cluster 2 1..
remote.log.manager.task.interval.ms LONG ro 30000 1..
remote.log.manager.thread.pool.size INT ro 2 1..
remote.log.metadata.custom.metadata.max.bytes INT ro 128 0..
remote.log.metadata.manager.class.name STRING ro org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager
remote.log.metadata.manager.class.path STRING ro null
remote.log.metadata.manager.impl.prefix STRING ro rlmm.config.
remote.log.metadata.manager.listener.name STRING ro null
remote.log.reader.max.pending.tasks INT ro 100 1..
remote.log.reader.threads INT cluster 10 1..
remote.log.storage.manager.class.name STRING ro null
remote.log.storage.manager.class.path STRING ro null
remote.log.storage.manager.impl.prefix STRING ro rsm.config.
remote.log.storage.system.enable BOOLEAN ro false
replica.alter.log.dirs.io.max.bytes.per.second LONG cluster 9223372036854775807 0..
replica.fetch.backoff.ms INT ro 1000 0..
replica.fetch.max.bytes INT ro 1048576 0..
replica.fetch.min.bytes INT ro 1
replica.fetch.response.max.bytes INT ro 10485760 0..
replica.fetch.wait.max.ms INT ro 500
replica.high.watermark.checkpoint.interval.ms LONG ro 5000 | How often high watermarks are written.
replica.lag.time.max.ms LONG ro 30000
replica.selector.class STRING ro null
replica.socket.receive.buffer.bytes INT ro 65536
replica.socket.timeout.ms INT ro 30000
replication.quota.window.num INT ro 11 1..
replication.quota.window.size.seconds INT ro 1 1..
request.timeout.ms INT ro 30000 | Longest wait for another broker's answer to a forwarded request.
sasl.client.callback.handler.class CLASS ro null
sasl.enabled.mechanisms LIST per-broker GSSAPI
sasl.jaas.config PASSWORD per-broker null
sasl.kerberos.kinit.cmd STRING per-broker /usr/bin/kinit
sasl.kerberos.min.time.before.relogin LONG per-broker 60000
sasl.kerberos.principal.to.local.rules LIST per-broker DEFAULT
sasl.kerberos.service.name STRING per-broker null
sasl.kerberos.ticket.renew.jitter DOUBLE per-broker 0.05
sasl.kerberos.ticket.renew.window.factor DOUBLE per-broker 0.8
sasl.login.callback.handler.class CLASS ro null
sasl.login.class CLASS ro null
sasl.login.connect.timeout.ms INT ro null
sasl.login.read.timeout.ms INT ro null
sasl.login.refresh.buffer.seconds SHORT per-broker 300
sasl.login.refresh.min.period.seconds SHORT per-broker 60
sasl.login.refresh.window.factor DOUBLE per-broker 0.8
sasl.login.refresh.window.jitter DOUBLE per-broker 0.05
sasl.login.retry.backoff.max.ms LONG ro 10000
sasl.login.retry.backoff.ms LONG ro 100
sasl.mechanism.controller.protocol STRING ro GSSAPI
sasl.mechanism.inter.broker.protocol STRING per-broker GSSAPI
sasl.oauthbearer.allow.unverified.audience BOOLEAN ro false
sasl.oauthbearer.allow.unverified.issuer BOOLEAN ro false
sasl.oauthbearer.assertion.algorithm STRING ro RS256 {ES256,RS256}i
sasl.oauthbearer.assertion.claim.aud STRING ro null
sasl.oauthbearer.assertion.claim.exp.seconds INT ro 300 0..86400
sasl.oauthbearer.assertion.claim.iss STRING ro null
sasl.oauthbearer.assertion.claim.jti.include BOOLEAN ro false
sasl.oauthbearer.assertion.claim.nbf.seconds INT ro 60 0..3600
sasl.oauthbearer.assertion.claim.sub STRING ro null
sasl.oauthbearer.assertion.file STRING ro null
sasl.oauthbearer.assertion.private.key.file STRING ro null
sasl.oauthbearer.assertion.private.key.passphrase PASSWORD ro null
sasl.oauthbearer.assertion.template.file STRING ro null
sasl.oauthbearer.client.credentials.client.id STRING ro null
sasl.oauthbearer.client.credentials.client.secret PASSWORD ro null
sasl.oauthbearer.clock.skew.seconds INT ro 30
sasl.oauthbearer.expected.audience LIST ro ""
sasl.oauthbearer.expected.issuer STRING ro null
sasl.oauthbearer.jwks.endpoint.refresh.ms LONG ro 3600000
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms LONG ro 10000
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms LONG ro 100
sasl.oauthbearer.jwks.endpoint.url STRING ro null
sasl.oauthbearer.jwt.retriever.class CLASS ro org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever
sasl.oauthbearer.jwt.validator.class CLASS ro org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator
sasl.oauthbearer.scope STRING ro null
sasl.oauthbearer.scope.claim.name STRING ro scope
sasl.oauthbearer.sub.claim.name STRING ro sub
sasl.oauthbearer.token.endpoint.url STRING ro null
sasl.server.callback.handler.class CLASS ro null
sasl.server.max.receive.size INT ro 524288
security.inter.broker.protocol STRING ro PLAINTEXT {PLAINTEXT,SSL,SASL_PLAINTEXT,SASL_SSL} | Names the inter-broker listener by its protocol when inter.broker.listener.name is not set.
security.providers STRING ro null
share.coordinator.append.linger.ms INT ro -1 -1..
share.coordinator.cached.buffer.max.bytes INT cluster 1048588 524288..
share.coordinator.load.buffer.size INT ro 5242880 1..
share.coordinator.snapshot.update.records.per.snapshot INT ro 500 0..500
share.coordinator.state.topic.compression.codec INT ro 0
share.coordinator.state.topic.min.isr SHORT ro 2 1..
share.coordinator.state.topic.num.partitions INT ro 50 1..
share.coordinator.state.topic.replication.factor SHORT ro 3 1..
share.coordinator.state.topic.segment.bytes INT ro 104857600 1..
share.coordinator.threads INT ro 1 1..
share.coordinator.write.timeout.ms INT ro 5000 1..
share.fetch.purgatory.purge.interval.requests INT ro 1000
socket.connection.setup.timeout.max.ms LONG ro 30000
socket.connection.setup.timeout.ms LONG ro 10000
socket.listen.backlog.size INT ro 50 1.. | Connections waiting to be accepted at most.
socket.receive.buffer.bytes INT ro 102400 | Receive buffer of a connection; -1 leaves it to the system.
socket.request.max.bytes INT ro 104857600 1.. | Longest request; a longer one closes the connection.
socket.send.buffer.bytes INT ro 102400 | Send buffer of a connection; -1 leaves it to the system.
ssl.allow.dn.changes BOOLEAN ro false
ssl.allow.san.changes BOOLEAN ro false
ssl.cipher.suites LIST per-broker ""
ssl.client.auth STRING per-broker none {required,requested,none}
ssl.enabled.protocols LIST per-broker TLSv1.2,TLSv1.3
ssl.endpoint.identification.algorithm STRING per-broker https
ssl.engine.factory.class CLASS per-broker null
ssl.key.password PASSWORD per-broker null
ssl.keymanager.algorithm STRING per-broker SunX509
ssl.keystore.certificate.chain PASSWORD per-broker null
ssl.keystore.key PASSWORD per-broker null
ssl.keystore.location STRING per-broker null
ssl.keystore.password PASSWORD per-broker null
ssl.keystore.type STRING per-broker JKS
ssl.principal.mapping.rules STRING ro DEFAULT
ssl.protocol STRING per-broker TLSv1.3
ssl.provider STRING per-broker null
ssl.secure.random.implementation STRING per-broker null
ssl.trustmanager.algorithm STRING per-broker PKIX
ssl.truststore.certificates PASSWORD per-broker null
ssl.truststore.location STRING per-broker null
ssl.truststore.password PASSWORD per-broker null
ssl.truststore.type STRING per-broker JKS
telemetry.max.bytes INT ro 1048576 1..
transaction.abort.timed.out.transaction.cleanup.interval.ms INT ro 10000 1..
transaction.max.timeout.ms INT ro 900000 1..
transaction.partition.verification.enable BOOLEAN cluster true
transaction.remove.expired.transaction.cleanup.interval.ms INT ro 3600000 1..
transaction.state.log.load.buffer.size INT ro 5242880 1..
transaction.state.log.min.isr INT ro 2 1..
transaction.state.log.num.partitions INT ro 50 1..
transaction.state.log.replication.factor SHORT ro 3 1..
transaction.state.log.segment.bytes INT ro 104857600 1..
transaction.two.phase.commit.enable BOOLEAN ro false
transactional.id.expiration.ms INT ro 604800000 1..
unclean.leader.election.enable BOOLEAN cluster false
"""
