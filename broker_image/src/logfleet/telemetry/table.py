"""The metrics of a broker, in the order of docs/reference/metrics.md.

Where an MBean is named, the metric has its meaning.
"""

from typing import Final, NamedTuple

from logfleet.telemetry.metric import Metric, counter, gauge, histogram

_REQUEST = "kafka.network:type=RequestMetrics,request=API,name="
_TOPIC = "kafka.server:type=BrokerTopicMetrics,name="
_LOG = "kafka.log:type=Log,topic=TOPIC,partition=P,name="
_GROUP = "kafka.coordinator.group:type=GroupMetadataManager,name="
_NETWORK = "kafka.server:type=socket-server-metrics,listener=NAME"
_MARKERS = "kafka.coordinator.transaction:type=TransactionMarkerChannelManager,name="
_REPLICAS = "kafka.server:type=ReplicaManager,name="
_SESSIONS = "kafka.server:type=FetchSessionCache,name="
_CLEANER = "kafka.log:type=LogCleaner,name="
_CLEANER_MANAGER = "kafka.log:type=LogCleanerManager,name="
_PURGATORY = (
    "kafka.server:type=DelayedOperationPurgatory,delayedOperation=OPERATION,name=PurgatorySize"
)

# Requests

REQUESTS = counter(
    "logfleet_requests_total",
    "Requests answered, and those that need no response",
    f"{_REQUEST}RequestsPerSec",
    labels="api",
)
REQUEST_ERRORS = counter(
    "logfleet_request_errors_total",
    "Errors in responses by their name, one for each partition, topic or other row that has one; "
    "Kafka counts NONE too",
    f"{_REQUEST}ErrorsPerSec,error=NAME",
    labels="api error",
)
REQUEST_FAILURES = counter(
    "logfleet_request_failures_total",
    "Requests that a bug of the broker ended; their connection was closed",
    labels="api",
)
REQUEST_SECONDS = histogram(
    "logfleet_request_seconds",
    "Time from the beginning of the work on a request until its response is ready to be "
    "sent: local and remote",
    f"{_REQUEST}TotalTimeMs",
    labels="api",
)
REQUEST_QUEUE_SECONDS = histogram(
    "logfleet_request_queue_seconds",
    "Time for which a request that came with many others of its connection waited while "
    "other connections had their turn; "
    "0 for nearly all, as a request is worked on when it is read",
    f"{_REQUEST}RequestQueueTimeMs",
    labels="api",
)
REQUEST_LOCAL_SECONDS = histogram(
    "logfleet_request_local_seconds",
    "Time of work on the event loop: decoding, the handler, encoding",
    f"{_REQUEST}LocalTimeMs",
    labels="api",
)
REQUEST_REMOTE_SECONDS = histogram(
    "logfleet_request_remote_seconds",
    "Time of waiting for records, other members, the disk, a thread or the controller; 0 if "
    "nothing was waited for",
    f"{_REQUEST}RemoteTimeMs",
    labels="api",
)
REQUEST_THROTTLE_SECONDS = histogram(
    "logfleet_request_throttle_seconds",
    "Time for which the response throttles the client",
    f"{_REQUEST}ThrottleTimeMs",
    labels="api",
)
RESPONSE_SEND_SECONDS = histogram(
    "logfleet_response_send_seconds",
    "Time of sending a response with parts of files that is longer than 96 KiB, until the "
    "kernel has its last byte; "
    "all others are handed over in one call",
    f"{_REQUEST}ResponseSendTimeMs",
    labels="listener",
)
PURGATORY_SIZE = gauge(
    "logfleet_purgatory_size",
    "Requests that wait: Fetch for records, Produce for the disk, Rebalance (JoinGroup) for "
    "the other members",
    _PURGATORY,
    labels="operation",
)

# Topics and partitions

BYTES_IN = counter(
    "logfleet_bytes_in_total",
    "Bytes of record batches that were appended",
    f"{_TOPIC}BytesInPerSec",
)
BYTES_OUT = counter(
    "logfleet_bytes_out_total",
    "Bytes of record batches in responses to consumers",
    f"{_TOPIC}BytesOutPerSec",
)
MESSAGES_IN = counter(
    "logfleet_messages_in_total",
    "Records that were appended",
    f"{_TOPIC}MessagesInPerSec",
)
TOPIC_BYTES_IN = counter(
    "logfleet_topic_bytes_in_total",
    "Bytes of record batches that were appended to the topic here",
    f"{_TOPIC}BytesInPerSec,topic=TOPIC",
    labels="topic",
)
TOPIC_BYTES_OUT = counter(
    "logfleet_topic_bytes_out_total",
    "Bytes of the topic's record batches in responses to consumers",
    f"{_TOPIC}BytesOutPerSec,topic=TOPIC",
    labels="topic",
)
TOPIC_MESSAGES_IN = counter(
    "logfleet_topic_messages_in_total",
    "Records that were appended to the topic here",
    f"{_TOPIC}MessagesInPerSec,topic=TOPIC",
    labels="topic",
)
PARTITIONS = gauge(
    "logfleet_partitions",
    "Partitions of which this broker has a replica, led or not",
    f"{_REPLICAS}PartitionCount",
)
PARTITIONS_LED = gauge(
    "logfleet_partitions_led",
    "Partitions that this broker leads",
    f"{_REPLICAS}LeaderCount",
)
PRODUCER_IDS = gauge(
    "logfleet_producer_ids",
    "Idempotent producers that this broker's partitions remember, counted once per partition",
    f"{_REPLICAS}ProducerIdCount",
)
PARTITION_LOG_START = gauge(
    "logfleet_partition_log_start_offset",
    "First offset of the log",
    f"{_LOG}LogStartOffset",
    labels="topic partition",
)
PARTITION_LOG_END = gauge(
    "logfleet_partition_log_end_offset",
    "Offset that the next record gets",
    f"{_LOG}LogEndOffset",
    labels="topic partition",
)
PARTITION_HIGH_WATERMARK = gauge(
    "logfleet_partition_high_watermark",
    "Offset below which all is committed",
    labels="topic partition",
)
PARTITION_STABLE_LAG = gauge(
    "logfleet_partition_last_stable_offset_lag",
    "Committed records that readers of committed transactions do not get yet, as a transaction "
    "before them is open",
    "kafka.cluster:type=Partition,name=LastStableOffsetLag,topic=TOPIC,partition=P",
    labels="topic partition",
)
PARTITION_SIZE = gauge(
    "logfleet_partition_size_bytes",
    "Bytes of the segments",
    f"{_LOG}Size",
    labels="topic partition",
)
PARTITION_SEGMENTS = gauge(
    "logfleet_partition_segments",
    "Number of segments",
    f"{_LOG}NumLogSegments",
    labels="topic partition",
)
LEFT_OUT = gauge(
    "logfleet_metrics_left_out",
    "Topics, partitions or offsets of groups that are not listed one by one, as there are "
    "more than "
    "logfleet.metrics.series.max; 0 if all are",
    labels="kind",
)

# Replication

UNDER_REPLICATED = gauge(
    "logfleet_under_replicated_partitions",
    "Partitions led here that lack an in-sync replica",
    f"{_REPLICAS}UnderReplicatedPartitions",
)
UNDER_MIN_ISR = gauge(
    "logfleet_under_min_isr_partitions",
    "Partitions led here with fewer in-sync replicas than min.insync.replicas",
    f"{_REPLICAS}UnderMinIsrPartitionCount",
)
AT_MIN_ISR = gauge(
    "logfleet_at_min_isr_partitions",
    "Partitions led here with as many in-sync replicas as min.insync.replicas asks for, and "
    "none to spare; those of one replica too",
    f"{_REPLICAS}AtMinIsrPartitionCount",
)
LATE_TRANSACTIONS = gauge(
    "logfleet_late_transaction_partitions",
    "Partitions led here with a transaction that is still open five minutes after "
    "transaction.max.timeout.ms: `logfleet transaction find-hanging` names it",
    f"{_REPLICAS}PartitionsWithLateTransactionsCount",
)
ISR_SHRINKS = counter(
    "logfleet_isr_shrinks_total",
    "Times that this broker as leader removed replicas that had fallen behind from an ISR",
    f"{_REPLICAS}IsrShrinksPerSec",
)
ISR_EXPANDS = counter(
    "logfleet_isr_expands_total",
    "Times that this broker as leader added replicas that had caught up to an ISR",
    f"{_REPLICAS}IsrExpandsPerSec",
)
ISR_UPDATES_FAILED = counter(
    "logfleet_isr_updates_failed_total",
    "Changes of an ISR that came too late, as the partition or a broker had changed meanwhile",
    f"{_REPLICAS}FailedIsrUpdatesPerSec",
)
REPLICA_LAG_MAX = gauge(
    "logfleet_replica_lag_max",
    "Committed records that this broker lacks as a follower, of the partition in which it "
    "lacks most",
    "kafka.server:type=ReplicaFetcherManager,name=MaxLag,clientId=Replica",
)
FOLLOWER_LAG = gauge(
    "logfleet_follower_lag",
    "Records of a partition led here that a follower does not have yet; in Kafka the "
    "followers report it",
    "kafka.server:type=FetcherLagMetrics,name=ConsumerLag,clientId=ID,topic=TOPIC,partition=P",
    labels="topic partition follower",
)
REPLICATION_BYTES_IN = counter(
    "logfleet_replication_bytes_in_total",
    "Bytes of record batches that this broker copied from leaders",
    f"{_TOPIC}ReplicationBytesInPerSec",
)
REPLICATION_BYTES_OUT = counter(
    "logfleet_replication_bytes_out_total",
    "Bytes of record batches in responses to followers",
    f"{_TOPIC}ReplicationBytesOutPerSec",
)
REPLICATION_THROTTLE_RATE = gauge(
    "logfleet_replication_throttle_bytes_per_second",
    "Rate of this side (leader, follower; added: for replicas that reassignments add) that "
    "is in force: less than was set while producers are slow; 0 without a throttle",
    labels="side",
)
REPLICATION_THROTTLED_BYTES = counter(
    "logfleet_replication_throttled_bytes_total",
    "Bytes of throttled replicas, which count against the rate of this side (leader, "
    "follower, added)",
    "kafka.server:type=LeaderReplication, type=FollowerReplication: byte-rate",
    labels="side",
)

# Groups

GROUPS = gauge(
    "logfleet_groups",
    "Groups that this broker coordinates, by state",
    f"{_GROUP}NumGroupsSTATE",
    labels="state",
)
GROUP_MEMBERS = gauge(
    "logfleet_group_members", "Members of all groups that this broker coordinates"
)
GROUP_COMMITTED_OFFSET = gauge(
    "logfleet_group_committed_offset",
    "Offset that a group committed",
    labels="group topic partition",
)
GROUP_PARTITION_LAG = gauge(
    "logfleet_group_partition_lag",
    "Offsets from the committed one to the high watermark, of partitions that this broker "
    "leads too",
    labels="group topic partition",
)
GROUP_LAG = gauge(
    "logfleet_group_lag",
    "Lag of the group, summed over the topic's partitions that this broker leads too",
    labels="group topic",
)
TRANSACTIONS_WITHOUT_MARKERS = gauge(
    "logfleet_transactions_without_markers",
    "Transactions whose outcome this broker has decided, and that lack their marker somewhere",
)
LEADERLESS_MARKERS = gauge(
    "logfleet_transaction_markers_leaderless",
    "Markers of transactions for partitions that have no leader",
    f"{_MARKERS}UnknownDestinationQueueSize",
)
UNCOMPLETED_TRANSACTIONS = gauge(
    "logfleet_transactions_uncompleted",
    "Transactions that have all markers, and whose completion could not be written yet",
    f"{_MARKERS}LogAppendRetryQueueSize",
)
GROUP_OFFSETS = gauge("logfleet_group_offsets", "Committed offsets", f"{_GROUP}NumOffsets")

# Connections

CONNECTIONS = gauge(
    "logfleet_connections",
    "Open connections",
    f"{_NETWORK},networkProcessor=N: connection-count",
    labels="listener",
)
CONNECTIONS_ACCEPTED = counter(
    "logfleet_connections_accepted_total",
    "Connections accepted",
    f"{_NETWORK},networkProcessor=N: connection-creation-total",
    labels="listener",
)
CONNECTIONS_CLOSED = counter(
    "logfleet_connections_closed_total",
    "Connections closed: by the peer (or an error of it), idle for connections.max.idle.ms, "
    "invalid (a request that cannot be "
    "answered), evicted for max.connections, throttled for connecting too often, stop of the "
    "broker",
    f"{_NETWORK},networkProcessor=N: connection-close-total, expired-connections-killed-count",
    labels="listener reason",
)
CONNECTIONS_REFUSED = counter(
    "logfleet_connections_refused_total",
    "Connections closed at once because their address had as many as max.connections.per.ip, "
    "or no file descriptors were left for more",
    labels="listener",
)
CONNECTIONS_WAIT = counter(
    "logfleet_connections_wait_seconds_total",
    "Time for which new connections were kept waiting by max.connections and the rate of new ones",
    f"{_NETWORK}: connection-accept-throttle-time",
    labels="listener",
)
CONNECTIONS_THROTTLED = counter(
    "logfleet_connections_throttled_total",
    "Connections turned away because their address opened too many",
    "kafka.server:type=socket-server-metrics: ip-connection-accept-throttle-time",
)
FETCH_SESSIONS = gauge(
    "logfleet_incremental_fetch_sessions",
    "Fetch sessions kept for readers (KIP-227)",
    f"{_SESSIONS}NumIncrementalFetchSessions",
)
FETCH_SESSION_PARTITIONS = gauge(
    "logfleet_incremental_fetch_partitions_cached",
    "Partitions of all fetch sessions",
    f"{_SESSIONS}NumIncrementalFetchPartitionsCached",
)
FETCH_SESSION_EVICTIONS = counter(
    "logfleet_incremental_fetch_session_evictions_total",
    "Fetch sessions evicted to make room for others",
    f"{_SESSIONS}IncrementalFetchSessionEvictionsPerSec",
)
QUOTA_THROTTLES = counter(
    "logfleet_quota_throttles_total", "Responses that throttled their client", labels="quota"
)
QUOTA_THROTTLE_SECONDS = counter(
    "logfleet_quota_throttle_seconds_total",
    "Time for which clients were throttled",
    "kafka.server:type=QUOTA,user=U,client-id=C: throttle-time",
    labels="quota",
)
QUOTA_CLIENTS = gauge(
    "logfleet_quota_clients", "Clients whose use of the quota is measured", labels="quota"
)

# The cluster

READY = gauge("logfleet_ready", "1 while /readyz reports that the broker may serve clients, else 0")
STORE_WRITES_REFUSED = counter(
    "logfleet_metadata_writes_refused_total",
    "Attempts of this broker to write to the metadata store that were refused, as for want "
    "of a permission: metadata_write_refused in its log; "
    "it goes on without, and tries again",
)
STORE_SILENT_SECONDS = gauge(
    "logfleet_metadata_store_silent_seconds",
    "Time for which the metadata store has not answered this broker's keepalives, 0 while it "
    "does: meanwhile nobody is elected, no ISR changes, "
    "and this broker leads what its followers or most brokers vouch for",
)
PARTITIONS_SUSPENDED = gauge(
    "logfleet_partitions_suspended",
    "Partitions that this broker leads and does not serve, as the metadata store does not "
    "answer and nobody vouches for it",
)
ACTIVE_CONTROLLER = gauge(
    "logfleet_active_controller",
    "1 on the broker that is the controller, else 0: their sum is 1 in a healthy cluster",
    "kafka.controller:type=KafkaController,name=ActiveControllerCount",
)
FAILED_TERMS = counter(
    "logfleet_controller_failed_terms_total",
    "Terms as controller that this broker gave up because it could not handle the stored "
    "metadata: controller_term_failed in its log",
    "kafka.controller:type=KafkaController,name=MetadataErrorCount",
)
ELECTIONS = counter(
    "logfleet_leader_elections_total",
    "Leaders that this broker as controller elected, of partitions that existed before",
    "kafka.controller:type=ControllerStats,name=LeaderElectionRateAndTimeMs",
)
UNCLEAN_ELECTIONS = counter(
    "logfleet_unclean_leader_elections_total",
    "Leaders that this broker as controller elected though they may lack acknowledged records",
    "kafka.controller:type=ControllerStats,name=UncleanLeaderElectionsPerSec",
)
ACTIVE_BROKERS = gauge(
    "logfleet_active_brokers",
    "Registered brokers that are not fenced, as the controller sees it; 0 on others",
    "kafka.controller:type=KafkaController,name=ActiveBrokerCount",
)
FENCED_BROKERS = gauge(
    "logfleet_fenced_brokers",
    "Brokers that have stopped, died or are not active yet, and were not unregistered, as "
    "the controller sees it; 0 on others",
    "kafka.controller:type=KafkaController,name=FencedBrokerCount",
)
DRAINING_BROKERS = gauge(
    "logfleet_draining_brokers",
    "Brokers that are leaving, as the controller sees it; 0 on others",
    "kafka.controller:type=KafkaController,name=ControlledShutdownBrokerCount",
)
TOPICS = gauge(
    "logfleet_topics",
    "Topics of the cluster, as the controller sees it; 0 on others",
    "kafka.controller:type=KafkaController,name=GlobalTopicCount",
)
OFFLINE_PARTITIONS = gauge(
    "logfleet_offline_partitions",
    "Partitions of the cluster without a leader, as the controller sees it; 0 on others",
    "kafka.controller:type=KafkaController,name=OfflinePartitionsCount",
)

# Disks

DISK_BYTES = gauge("logfleet_disk_bytes", "Size of the disk", labels="path")
DISK_FREE = gauge(
    "logfleet_disk_free_bytes", "Bytes that may still be written to the disk", labels="path"
)
DISK_FULL = gauge(
    "logfleet_disk_full",
    "1 while the log directory takes no records because its disk is full",
    labels="path",
)
DISK_USED_OVER = gauge(
    "logfleet_disk_used_over",
    "1 while at least this percentage of the disk is used",
    labels="path percent",
)
OFFLINE_LOG_DIRS = gauge(
    "logfleet_offline_log_directories",
    "Log directories that failed and are not used any more",
    "kafka.log:type=LogManager,name=OfflineLogDirectoryCount",
)

# Compaction

CLEANINGS = counter(
    "logfleet_log_cleaner_cleanings_total", "Rounds of compaction, each over one log"
)
CLEANER_FAILURES = counter(
    "logfleet_log_cleaner_failures_total",
    "Rounds of compaction that ended early, not counting logs that were deleted",
)
CLEANER_READ_BYTES = counter(
    "logfleet_log_cleaner_read_bytes_total", "Bytes of log that compaction read"
)
CLEANER_KEPT_BYTES = counter(
    "logfleet_log_cleaner_kept_bytes_total",
    "Bytes that compaction kept",
    f"{_CLEANER}cleaner-recopy-percent",
)
CLEANER_READ_RECORDS = counter(
    "logfleet_log_cleaner_read_records_total", "Records that compaction read"
)
CLEANER_KEPT_RECORDS = counter(
    "logfleet_log_cleaner_kept_records_total", "Records that compaction kept"
)
CLEANER_KEYLESS_RECORDS = counter(
    "logfleet_log_cleaner_keyless_records_total",
    "Records that compaction dropped because they had no key",
)
CLEANER_CPU = counter(
    "logfleet_log_cleaner_cpu_seconds_total", "Processor time of the child processes for compaction"
)
CLEANER_DIRTY_RATIO = gauge(
    "logfleet_log_cleaner_max_dirty_ratio",
    "Largest share of bytes that are not compacted, among logs that may be compacted",
    f"{_CLEANER_MANAGER}max-dirty-percent",
)
CLEANER_DELAY = gauge(
    "logfleet_log_cleaner_max_compaction_delay_seconds",
    "Time that the oldest record has waited for compaction beyond max.compaction.lag.ms",
    f"{_CLEANER}max-compaction-delay-secs",
)
CLEANER_ROUND = gauge(
    "logfleet_log_cleaner_last_round_seconds",
    "Duration of the last round of compaction",
    f"{_CLEANER}max-clean-time-secs",
)
CLEANER_MAP = gauge(
    "logfleet_log_cleaner_last_map_utilization_ratio",
    "Share of the map of keys that the last round of compaction used",
    f"{_CLEANER}max-buffer-utilization-percent",
)
CLEANER_LOOKED = gauge(
    "logfleet_log_cleaner_seconds_since_last_look",
    "Time since logs were last checked for compaction",
    f"{_CLEANER_MANAGER}time-since-last-run-ms",
)
CLEANER_UNCLEANABLE = gauge(
    "logfleet_log_cleaner_uncleanable_partitions",
    "Logs that cannot be compacted; the reason is in the log of the broker",
    f"{_CLEANER_MANAGER}uncleanable-partitions-count,logDirectory=PATH",
    labels="directory",
)
CLEANER_UNCLEANABLE_BYTES = gauge(
    "logfleet_log_cleaner_uncleanable_bytes",
    "Size of the logs that cannot be compacted",
    f"{_CLEANER_MANAGER}uncleanable-bytes,logDirectory=PATH",
    labels="directory",
)

# The process

LOOP_LAG = histogram(
    "logfleet_event_loop_lag_seconds",
    "Delay of timers on the event loop, measured ten times a second",
    "instead of kafka.network:type=SocketServer,name=NetworkProcessorAvgIdlePercent",
)
LOOP_LAG_MAX = gauge(
    "logfleet_event_loop_lag_max_seconds",
    "Longest delay of a timer on the event loop since the start",
)
DECISIONS_DROPPED = counter(
    "logfleet_decisions_dropped_total",
    "Decisions of `logfleet events` that are lost at a restart: their disk is full, slow or "
    "has failed",
)
BUILD_INFO = gauge(
    "logfleet_build_info",
    "1; its label is the version of Logfleet that the broker runs",
    "kafka.server:type=app-info,version",
    labels="version",
)
PROCESS_CPU = counter("process_cpu_seconds_total", "Processor time of the process, user and system")
PROCESS_RSS = gauge("process_resident_memory_bytes", "Memory of the process that is resident")
PROCESS_VIRTUAL = gauge("process_virtual_memory_bytes", "Address space of the process")
PROCESS_STARTED = gauge(
    "process_start_time_seconds", "Start time of the process, in seconds since 1970"
)
PROCESS_OPEN_FDS = gauge("process_open_fds", "File descriptors in use")
PROCESS_MAX_FDS = gauge(
    "process_max_fds", "Largest number of file descriptors that the process may open"
)


class Section(NamedTuple):
    """Metrics that belong together, with a title for readers."""

    title: str
    metrics: tuple[Metric, ...]


METRICS: Final = {each.name: each for each in tuple(globals().values()) if isinstance(each, Metric)}
"""All metrics by name, in the order above."""

_BEGIN: Final = {
    REQUESTS.name: "Requests",
    BYTES_IN.name: "Topics and partitions",
    UNDER_REPLICATED.name: "Replication",
    GROUPS.name: "Groups",
    CONNECTIONS.name: "Connections, sessions, quotas",
    READY.name: "The cluster",
    DISK_BYTES.name: "Disks",
    CLEANINGS.name: "Compaction",
    LOOP_LAG.name: "The process",
}
"""The first metric of each section."""


def sections() -> list[Section]:
    """All metrics under their titles."""
    found: list[Section] = []
    for name, metric in METRICS.items():
        if name in _BEGIN:
            found.append(Section(_BEGIN[name], ()))
        found[-1] = Section(found[-1].title, (*found[-1].metrics, metric))
    return found
