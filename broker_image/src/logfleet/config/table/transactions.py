"""Keys of brokers: transactions."""

TRANSACTIONS = """
add.partitions.to.txn.retry.backoff.max.ms INT ro high 100 0.. | Longest time for which adding a partition to a transaction is tried again by the broker itself. | in node.transactions.verifier
add.partitions.to.txn.retry.backoff.ms INT ro high 20 1.. | Longest pause between two such attempts; it begins at a sixteenth and doubles. | in node.transactions.verifier
transaction.abort.timed.out.transaction.cleanup.interval.ms INT ro low 10000 1.. | How often transactions are checked for their timeout. | in node.transactions.transaction_coordinators
transaction.max.timeout.ms INT ro high 900000 1.. | Longest transaction timeout that a producer may ask for. | in node.transactions.transaction_coordinators
transaction.partition.verification.enable BOOLEAN cluster low true | Whether a partition's leader asks the coordinator if a transaction is really in progress. | in node.transactions.verifier
transaction.remove.expired.transaction.cleanup.interval.ms INT ro low 3600000 1.. | How often transactional ids are checked for expiry. | in node.transactions.transaction_coordinators
transaction.state.log.load.buffer.size INT ro high 5242880 1.. | Bytes read at once when transactions are loaded.
transaction.state.log.min.isr INT ro high 2 1.. | In-sync replicas that writes to __transaction_state need. | in node.transactions.transaction_coordinators
transaction.state.log.num.partitions INT ro high 50 1.. | Partitions of __transaction_state. | in node.transactions.transaction_coordinators
transaction.state.log.replication.factor SHORT ro high 3 1.. | Replicas of __transaction_state: if it is set never fewer, else as many as there are brokers, 3 at most; more are added as brokers come. | in controller.brokers.internal_topics
transaction.state.log.segment.bytes INT ro high 104857600 1.. | Segment size of __transaction_state. | in node.transactions.transaction_coordinators
transaction.two.phase.commit.enable BOOLEAN ro low false | Whether producers may take part in two-phase commit with another system.
transactional.id.expiration.ms INT ro high 604800000 1.. | A transactional id without an open transaction is removed this long after its last use. | in node.transactions.transaction_coordinators
"""
