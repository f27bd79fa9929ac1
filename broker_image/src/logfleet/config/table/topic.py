"""Keys of topics (Kafka: TopicConfig, LogConfig)."""

TOPIC = """
cleanup.policy LIST medium delete {compact,delete}d | What happens to old segments: delete removes them by time and size, compact keeps the last record of each key, both may be set. | in log.config | from log.cleanup.policy
compression.gzip.level INT medium -1 1..9|-1 | Effort of gzip where the broker compresses; -1 is the codec's own default. | in node.partitions.log_configs | from compression.gzip.level
compression.lz4.level INT medium 9 1..17 | Effort of lz4 where the broker compresses. | in node.partitions.log_configs | from compression.lz4.level
compression.type STRING medium producer {uncompressed,zstd,lz4,snappy,gzip,producer} | Codec in which batches are stored; producer leaves them as they were sent. | in node.partitions.log_configs | from compression.type
compression.zstd.level INT medium 3 -131072..22 | Effort of zstd where the broker compresses. | in node.partitions.log_configs | from compression.zstd.level
delete.retention.ms LONG medium 86400000 0.. | How long a compacted topic keeps tombstones and the markers of aborted transactions. | in log.compaction.batch_cleaning | from log.cleaner.delete.retention.ms
errors.deadletterqueue.group.enable BOOLEAN medium false | Whether share groups may use this topic as their dead letter queue.
file.delete.delay.ms LONG medium 60000 0.. | How long the files of removed segments stay on disk. | in log.partition_log | from log.segment.delete.delay.ms
flush.messages LONG medium 9223372036854775807 1.. | Records after which a log is made durable, before the last of them is acknowledged; without bound, the broker flushes by its own schedule. | in node.partitions.flush_rules | from log.flush.interval.messages
flush.ms LONG medium 9223372036854775807 0.. | What is written is durable after this time, or 5 seconds; a longer time lets a log be flushed more seldom. | in node.partitions.flush_rules | from log.flush.interval.ms log.flush.scheduler.interval.ms
follower.replication.throttled.replicas LIST medium "" replicas | Replicas whose fetching counts against follower.replication.throttled.rate, as partition:broker pairs or *. | in config.throttle_keys
index.interval.bytes INT medium 4096 0.. | One index entry is written per this many bytes of log. | in log.segments.roll | from log.index.interval.bytes
leader.replication.throttled.replicas LIST medium "" replicas | Replicas whose serving of followers counts against leader.replication.throttled.rate, as partition:broker pairs or *. | in config.throttle_keys
local.retention.bytes LONG medium -2 -2.. | Bytes of a tiered partition that stay on local disk; -2 means retention.bytes. | from log.local.retention.bytes
local.retention.ms LONG medium -2 -2.. | How long segments of a tiered topic stay on local disk; -2 means retention.ms. | from log.local.retention.ms
max.compaction.lag.ms LONG medium 9223372036854775807 1.. | Longest time that a record may stay uncompacted. | in log.compaction.due | from log.cleaner.max.compaction.lag.ms
max.decompressed.message.bytes INT medium 2147483639 1..2147483639 | A record of a compressed batch may have this many bytes at most. | in log.validation | from max.decompressed.message.bytes
max.message.bytes INT medium 1048588 0.. | Largest record batch that is accepted, in bytes as sent. | in log.validation | from message.max.bytes
message.timestamp.after.max.ms LONG medium 3600000 0.. | How far a record's timestamp may lie after the broker's clock. | in log.validation | from log.message.timestamp.after.max.ms
message.timestamp.before.max.ms LONG medium 9223372036854775807 0.. | How far a record's timestamp may lie before the broker's clock. | in log.validation | from log.message.timestamp.before.max.ms
message.timestamp.type STRING medium CreateTime {CreateTime,LogAppendTime} | Whose clock stamps the records: the producer's (CreateTime) or the broker's (LogAppendTime). | in node.partitions.log_configs | from log.message.timestamp.type
min.cleanable.dirty.ratio DOUBLE medium 0.5 0..1 | Share of a log that must be uncompacted before it is compacted. | in log.compaction.due | from log.cleaner.min.cleanable.ratio
min.compaction.lag.ms LONG medium 0 0.. | Shortest time that a record stays uncompacted. | in log.compaction.due | from log.cleaner.min.compaction.lag.ms
min.insync.replicas INT medium 1 1.. | In-sync replicas without which a write with acks=all is refused. | in controller.changes.election_writes | from min.insync.replicas
preallocate BOOLEAN medium false | Whether a segment's file is given its whole size when it is made. | from log.preallocate
remote.copy.lag.bytes LONG medium -1 -1.. | Bytes that may be rolled before a segment is copied to the object store; -1 leaves it to the other bounds. | from log.remote.copy.lag.bytes
remote.copy.lag.ms LONG medium 0 -1.. | Time that a rolled segment may wait before it is copied to the object store; -1 leaves it to the other bounds. | from log.remote.copy.lag.ms
remote.log.copy.disable BOOLEAN medium false | Stops copying to the object store; what was copied can still be read.
remote.log.delete.on.disable BOOLEAN medium false | Whether the copies in the object store are deleted when tiering is switched off.
remote.storage.enable BOOLEAN medium false | Whether closed segments are also kept in the object store.
retention.bytes LONG medium -1 | Oldest segments are deleted while a partition is larger than this; below 0 never. | in log.retention | from log.retention.bytes
retention.ms LONG medium 604800000 -1.. | Segments are deleted when all their records are older than this; -1 never. | in log.retention | from log.retention.ms log.retention.minutes*60000 log.retention.hours*3600000
segment.bytes INT medium 1073741824 1048576.. | A segment is closed at this size. | in log.segments.roll | from log.segment.bytes
segment.index.bytes INT medium 10485760 4.. | Size of an index file; a segment whose index is full is closed. | in log.segments.roll | from log.index.size.max.bytes
segment.jitter.ms LONG medium 0 0.. | Random part taken off segment.ms, so that the logs of a topic do not roll together. | in log.partition_log | from log.roll.jitter.ms log.roll.jitter.hours*3600000
segment.ms LONG medium 604800000 1.. | A segment is closed at this age, however small it is. | in log.config | from log.roll.ms log.roll.hours*3600000
unclean.leader.election.enable BOOLEAN medium false | Whether a replica that is not in sync may lead when no other is left, at the price of lost records. | in controller.changes.election_writes | from unclean.leader.election.enable
"""
