"""Keys of brokers: tiered storage."""

TIERING = """
follower.fetch.last.tiered.offset.enable BOOLEAN cluster medium false | Whether a new follower starts after the records in the object store.
remote.fetch.max.wait.ms INT cluster medium 500 1.. | Longest wait for data from the object store in one fetch.
remote.list.offsets.request.timeout.ms LONG cluster medium 30000 1.. | Longest wait for offsets that only the object store knows.
remote.log.index.file.cache.total.size.bytes LONG cluster low 1073741824 1.. | Disk for indexes that were read from the object store.
remote.log.manager.copier.thread.pool.size INT cluster medium 10 1.. | Segments that are copied to the object store at the same time.
remote.log.manager.copy.max.bytes.per.second LONG cluster medium 9223372036854775807 1.. | Bytes per second copied to the object store at most.
remote.log.manager.copy.quota.window.num INT ro medium 11 1.. | Windows over which that rate is measured.
remote.log.manager.copy.quota.window.size.seconds INT ro medium 1 1.. | Length of one such window.
remote.log.manager.expiration.thread.pool.size INT cluster medium 10 1.. | Partitions whose remote segments are expired at the same time.
remote.log.manager.fetch.max.bytes.per.second LONG cluster medium 9223372036854775807 1.. | Bytes per second read from the object store at most.
remote.log.manager.fetch.quota.window.num INT ro medium 11 1.. | Windows over which that rate is measured.
remote.log.manager.fetch.quota.window.size.seconds INT ro medium 1 1.. | Length of one such window.
remote.log.manager.follower.thread.pool.size INT cluster medium 2 1.. | Followed partitions that are looked after at the same time.
remote.log.manager.task.interval.ms LONG ro low 30000 1.. | How often a tiered partition is checked.
remote.log.manager.thread.pool.size INT ro medium 2 1.. | Threads of Kafka's tiering, replaced by the three pools above.
remote.log.metadata.custom.metadata.max.bytes INT ro low 128 0.. | Bytes that a storage plugin may add to a segment's metadata.
remote.log.metadata.manager.class.name STRING ro medium org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager nonempty | Java class that keeps the metadata of remote segments.
remote.log.metadata.manager.class.path STRING ro medium null | Where that class is loaded from.
remote.log.metadata.manager.impl.prefix STRING ro medium rlmm.config. nonempty | Prefix of the keys that are handed to that class.
remote.log.metadata.manager.listener.name STRING ro medium null nonempty | Listener by which that class reaches the brokers.
remote.log.reader.max.pending.tasks INT ro medium 100 1.. | Reads from the object store that may wait.
remote.log.reader.threads INT cluster medium 10 1.. | Reads from the object store at the same time.
remote.log.storage.manager.class.name STRING ro medium null nonempty | Java class that reads and writes the object store.
remote.log.storage.manager.class.path STRING ro medium null | Where that class is loaded from.
remote.log.storage.manager.impl.prefix STRING ro medium rsm.config. nonempty | Prefix of the keys that are handed to that class.
remote.log.storage.system.enable BOOLEAN ro medium false | Whether topics may be tiered to an object store.
"""
