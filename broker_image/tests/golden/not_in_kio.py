"""The (message, version) pairs of our table that kio lacks, each with the checks that cover it instead.

Kafka's own generated classes of 4.4.0 read and write every pair of the table, kio's or not (CLASSES). Beyond that, a running
Kafka 4.4.0 takes the requests and its answers are read here to the last byte (LIVE), and the records of its group coordinator
are read from its own __consumer_offsets (RECORDS), those of its metadata from the directory that it left (ADOPTED). A version with CLASSES alone is one that a 4.4.0 broker no longer writes.
"""

CLASSES = "e2e/suites/local/beside_kafka/test_wire_kafka_classes.py::test_kafka_reads_our_bytes_and_writes_the_same"
LIVE = "e2e/suites/local/beside_kafka/test_wire_kafka_live.py::test_kafka_serves_every_version_that_we_encode"
ADOPTED = "e2e/suites/local/test_adopt.py::test_what_kafka_left_is_served_by_our_broker"
RECORDS = "e2e/suites/local/beside_kafka/test_wire_kafka_live.py::test_the_group_records_that_kafka_wrote_are_read"

CHECKS = {
    ("AccessControlEntryRecord", 0): (CLASSES,),
    ("ApiVersionsRequest", 5): (CLASSES, LIVE),
    ("ApiVersionsResponse", 5): (CLASSES, LIVE),
    ("ClientQuotaRecord", 0): (CLASSES, ADOPTED),
    ("ConfigRecord", 0): (CLASSES, ADOPTED),
    ("DeleteGroupsRequest", 3): (CLASSES, LIVE),
    ("DeleteGroupsResponse", 3): (CLASSES, LIVE),
    ("GroupMetadataKey", 0): (CLASSES, RECORDS),
    ("GroupMetadataValue", 0): (CLASSES,),
    ("GroupMetadataValue", 1): (CLASSES,),
    ("GroupMetadataValue", 2): (CLASSES,),
    ("GroupMetadataValue", 3): (CLASSES, RECORDS),
    ("GroupMetadataValue", 4): (CLASSES,),
    ("OffsetCommitKey", 0): (CLASSES, RECORDS),
    ("OffsetCommitValue", 0): (CLASSES,),
    ("OffsetCommitValue", 1): (CLASSES, RECORDS),
    ("OffsetCommitValue", 2): (CLASSES,),
    ("OffsetCommitValue", 3): (CLASSES,),
    ("OffsetCommitValue", 4): (CLASSES, RECORDS),
    ("PartitionChangeRecord", 0): (CLASSES,),
    ("PartitionChangeRecord", 1): (CLASSES,),
    ("PartitionChangeRecord", 2): (CLASSES, ADOPTED),
    ("PartitionRecord", 0): (CLASSES,),
    ("PartitionRecord", 1): (CLASSES,),
    ("PartitionRecord", 2): (CLASSES, ADOPTED),
    ("ProducerIdsRecord", 0): (CLASSES, ADOPTED),
    ("RemoveAccessControlEntryRecord", 0): (CLASSES,),
    ("RemoveTopicRecord", 0): (CLASSES, ADOPTED),
    ("StreamsGroupDescribeRequest", 1): (CLASSES, LIVE),
    ("StreamsGroupDescribeResponse", 1): (CLASSES, LIVE),
    ("StreamsGroupHeartbeatRequest", 1): (CLASSES, LIVE),
    ("StreamsGroupHeartbeatResponse", 1): (CLASSES, LIVE),
    ("StreamsGroupTopologyDescriptionUpdateRequest", 0): (CLASSES, LIVE),
    ("StreamsGroupTopologyDescriptionUpdateResponse", 0): (CLASSES, LIVE),
    ("TopicRecord", 0): (CLASSES, ADOPTED),
    ("TransactionLogKey", 0): (CLASSES,),
    ("TransactionLogValue", 0): (CLASSES,),
    ("TransactionLogValue", 1): (CLASSES,),
    ("TxnOffsetCommitRequest", 6): (CLASSES, LIVE),
    ("TxnOffsetCommitResponse", 6): (CLASSES, LIVE),
    ("UnregisterControllerRequest", 0): (CLASSES, LIVE),
    ("UnregisterControllerResponse", 0): (CLASSES, LIVE),
}
