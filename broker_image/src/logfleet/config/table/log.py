"""Keys of brokers: logs on disk, and what topics take their defaults from."""

LOG = """
compression.gzip.level INT cluster medium -1 1..9|-1
compression.lz4.level INT cluster medium 9 1..17
compression.type STRING cluster high producer {uncompressed,zstd,lz4,snappy,gzip,producer}
compression.zstd.level INT cluster medium 3 -131072..22
cordoned.log.dirs LIST per-broker medium "" | Data directories that get no new partitions; * stands for all, and nothing else has an effect. | in controller.brokers.cordons
log.cleaner.backoff.ms LONG cluster medium 15000 0.. | Pause of the cleaner when no log needs compaction. | in config.cleaner
log.cleaner.dedupe.buffer.size LONG cluster medium 134217728 | Memory for the key tables of all cleaner workers together. | in config.cleaner
log.cleaner.delete.retention.ms LONG cluster medium 86400000 0..
log.cleaner.enable BOOLEAN ro medium true | Whether compacted topics are compacted at all. | in node.partitions.log_tasks
log.cleaner.io.buffer.load.factor DOUBLE cluster medium 0.9 | How full a key table may get. | in config.cleaner
log.cleaner.io.buffer.size INT cluster medium 524288 0.. | Memory for reading and writing segments of all cleaner workers together.
log.cleaner.io.max.bytes.per.second DOUBLE cluster medium 1.7976931348623157E308 | Bytes per second that the cleaner reads and writes at most. | in config.cleaner
log.cleaner.max.compaction.lag.ms LONG cluster medium 9223372036854775807 1..
log.cleaner.min.cleanable.ratio DOUBLE cluster medium 0.5 0..1
log.cleaner.min.compaction.lag.ms LONG cluster medium 0 0..
log.cleaner.threads INT cluster medium 1 0.. | Logs that are compacted at the same time. | in config.cleaner
log.cleanup.policy LIST cluster medium delete {compact,delete}
log.dir LIST ro high logfleet-data | Data directory where log.dirs is not set. | in config.broker
log.dir.failure.timeout.ms LONG ro low 30000 1.. | Time within which the controller must learn of a failed data directory, else the broker stops.
log.dirs LIST ro high null | Data directories, separated by commas. | in node.broker
log.flush.interval.messages LONG cluster high 9223372036854775807 1..
log.flush.interval.ms LONG cluster high null
log.flush.offset.checkpoint.interval.ms INT ro high 60000 0.. | How often recovery points are written; at least every 5 seconds. | in node.partitions.maintenance
log.flush.scheduler.interval.ms LONG ro high 9223372036854775807 | How often logs are checked for a flush; at least every 5 seconds. | in node.partitions.maintenance
log.flush.start.offset.checkpoint.interval.ms INT ro high 60000 0.. | How often log start offsets are written; a new one always is before DeleteRecords is answered.
log.index.interval.bytes INT cluster medium 4096 0..
log.index.size.max.bytes INT cluster medium 10485760 4..
log.local.retention.bytes LONG cluster medium -2 -2..
log.local.retention.ms LONG cluster medium -2 -2..
log.message.timestamp.after.max.ms LONG cluster medium 3600000 0..
log.message.timestamp.before.max.ms LONG cluster medium 9223372036854775807 0..
log.message.timestamp.type STRING cluster medium CreateTime {CreateTime,LogAppendTime}
log.preallocate BOOLEAN cluster medium false
log.remote.copy.lag.bytes LONG cluster medium -1 -1..
log.remote.copy.lag.ms LONG cluster medium 0 -1..
log.retention.bytes LONG cluster high -1
log.retention.check.interval.ms LONG ro medium 300000 1.. | How often logs are checked for segments that may be deleted. | in node.partitions.maintenance
log.retention.hours INT ro high 168
log.retention.minutes INT ro high null
log.retention.ms LONG cluster high null
log.roll.hours INT ro high 168 1..
log.roll.jitter.hours INT ro high 0 0..
log.roll.jitter.ms LONG cluster high null
log.roll.ms LONG cluster high null
log.segment.bytes INT cluster high 1073741824 1048576..
log.segment.delete.delay.ms LONG cluster high 60000 0..
max.decompressed.message.bytes INT cluster medium 2147483639 1..2147483639
message.max.bytes INT cluster high 1048588 0..
min.insync.replicas INT cluster high 1 1..
num.recovery.threads.per.data.dir INT cluster high 2 1.. | Logs of one data directory that are opened at the same time at a start, after a crash with recovery, at most 64; and that are closed at a stop, at least 4. | in node.partitions.log_configs
num.replica.alter.log.dirs.threads INT ro high null | Replicas that are moved between data directories at the same time.
producer.id.expiration.ms INT cluster low 86400000 1.. | State of an idempotent producer is kept this long after its last write. | in node.partitions.maintenance
replica.high.watermark.checkpoint.interval.ms LONG ro high 5000 | How often high watermarks are written.
unclean.leader.election.enable BOOLEAN cluster high false
"""
