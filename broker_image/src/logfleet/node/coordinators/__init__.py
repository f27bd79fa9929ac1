"""A runtime for coordinators of any kind: groups now, transactions and share groups next.

Each partition of an internal topic has one coordinator: a state machine without clock or log
(`logfleet.coordinators.coordinator`) that runs on the partition's leader, in a shard. The partition
holds the state as records. Source: Kafka's CoordinatorRuntime, CoordinatorShard, CoordinatorLoader.

The runtime owes to its broker:

- one shard for each led partition of the topic (`runtime`). Each leadership has a shard of its own;
  the shard of an earlier one is closed before the next exists, so that one leader epoch writes.
  The end of an older leadership never closes the shard of a newer one.
- quick takeovers: a follower decodes what is committed (`standby`), so that a new leader only reads
  the rest (`loader`). A follower whose log was truncated below what it has decoded reads all again.

The runtime owes to a coordinator:

- every record of the log, in order, then `take_up`, then requests; after a failed read a batch may
  come again from its start. The coordinator starts only when everything that the new leader found
  is committed: until then the former leader may have acknowledged it, and a second failover may
  still lose it.
- each turn (`logfleet.coordinators.turn`) executed whole, before anything else reaches the
  coordinator. A write is appended as one batch and applied at once: the state equals the log at
  every moment, and is never rolled back. What follows a write (`then`) runs once the batch is
  committed, or with an error. Writes finish in order; one without records waits for all before it.
- the error of a write. None of these are retried by the runtime; clients do:
    the append is refused     nothing was appended, nothing was applied;
    KAFKA_STORAGE_ERROR       nothing was applied; this leadership ends;
    REQUEST_TIMED_OUT         outcome unknown: the batch is in the log and applied, and may be
                              committed later;
    NOT_LEADER_OR_FOLLOWER    outcome unknown: the next leader may have the batch.
- a `tick` soon after its next deadline; one timer serves all shards.
- short steps: loading, starting and walks over all state let the loop run in between.

A coordinator owes to the runtime:

- all stored state comes from `apply`, `replay` and `end_transaction`; requests only read it.
- every reply that depends on stored state is sent in the `then` of a write: of its own records, or
  of none if it only reads. Else a failover may take back what a client has seen.
- nothing parked after `unload`: requests are refused, deadlines are cleared.

A shard's states (`shard.ShardState`):

    LOADING   the log is read, and its end is not yet committed: COORDINATOR_LOAD_IN_PROGRESS
    STARTING  all is committed; `take_up` goes on step by step: COORDINATOR_LOAD_IN_PROGRESS
    ACTIVE    requests are served
    FAILED    the log cannot be decoded; a coordinator without a part of the state would be worse
              than none: NOT_COORDINATOR until another leadership
    CLOSED    leadership has ended: NOT_COORDINATOR

    LOADING -> STARTING -> ACTIVE; LOADING -> FAILED; each of them -> CLOSED.

A log that cannot be read or written takes the partition out of service (`storage_failed`), which
ends the leadership; while descriptors or memory are short, reading is retried.
"""
