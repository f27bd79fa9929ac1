"""What one round makes of transactional batches and markers, one after another."""

import pytest
from logfleet.log.aborted import AbortedEntry
from logfleet.log.compaction.transactions import CleanedTransactions
from logfleet.records.batch import parse_header
from logfleet.records.control import marker_batch, read_marker
from logfleet.records.record import ProducerStamp, Record, build_batch

KEPT, GONE, ABORTED, COMMITTED = "marker stays", "marker may go", "aborted", "committed"
E20 = AbortedEntry(1, 10, 20, 21)


def data(offset, producer_id=1):
    stamp = ProducerStamp(producer_id, 0, 0, transactional=True)
    return bytearray(build_batch([Record(b"k", b"v", 0)], base_offset=offset, producer=stamp))


def marker(offset, *, commit, producer_id=1):
    batch = marker_batch(producer_id, 0, commit=commit, coordinator_epoch=0, now_ms=0)
    batch[:8] = offset.to_bytes(8)
    return batch


def commit(offset, producer_id=1):
    return marker(offset, commit=True, producer_id=producer_id)


def abort(offset, producer_id=1):
    return marker(offset, commit=False, producer_id=producer_id)


def emptied(batch):
    """The batch as compaction leaves it without records."""
    batch[57:61] = bytes(4)
    return batch


def unknown(offset):
    """A control batch of another type than those of markers."""
    batch = commit(offset)
    batch[67:69] = (9).to_bytes(2)
    assert read_marker(batch) is None
    return batch


def run(batches, aborted=()):
    """What is decided about each; the aborted transactions whose entries stay."""
    state, decided, entries = CleanedTransactions(), [], []
    state.add(aborted)
    for batch in batches:
        header = parse_header(batch)
        if header.is_control:
            ended = state.end(header, read_marker(batch))
            decided.append(GONE if ended.is_gone else KEPT)
            entries += [ended.aborted] if ended.aborted else []
        else:
            decided.append(ABORTED if state.read(header) else COMMITTED)
    return decided, entries


@pytest.mark.parametrize(
    "batches, aborted, decided, entries",
    [
        ([data(10), commit(20)], [], [COMMITTED, KEPT], []),
        ([data(10), abort(20)], [E20], [ABORTED, KEPT], [E20]),
        ([data(15), abort(20)], [E20], [ABORTED, KEPT], [E20]),  # its first batch is gone
        ([commit(20)], [], [GONE], []),
        ([abort(20)], [E20], [GONE], []),  # its entry goes before the marker
        ([abort(20)], [], [GONE], []),
        ([emptied(data(10)), commit(20)], [], [COMMITTED, KEPT], []),
        ([emptied(data(10)), abort(20)], [E20], [ABORTED, KEPT], [E20]),
        ([data(10), emptied(commit(12)), commit(20)], [], [COMMITTED, GONE, KEPT], []),
        ([data(10), emptied(abort(12)), abort(20)], [E20], [ABORTED, GONE, KEPT], [E20]),
        ([unknown(5), data(10), unknown(12)], [], [KEPT, COMMITTED, KEPT], []),
        # one transaction after another
        ([data(5), commit(6), data(10), abort(20)], [E20], [COMMITTED, KEPT, ABORTED, KEPT], [E20]),
        (
            [data(10), abort(20), data(21), commit(22)],
            [E20],
            [ABORTED, KEPT, COMMITTED, KEPT],
            [E20],
        ),
        ([abort(20), data(21), commit(22)], [E20], [GONE, COMMITTED, KEPT], []),
        ([data(10), abort(20), commit(22)], [E20], [ABORTED, KEPT, GONE], [E20]),
        ([data(21), commit(22)], [E20], [COMMITTED, KEPT], []),  # a marker that is not there
        # an index that lacks an entry: the marker stays
        ([data(10), abort(20)], [], [COMMITTED, KEPT], []),
        # others in between
        (
            [data(10), data(11, 2), commit(12, 2), data(13), abort(20), abort(21, 2)],
            [E20],
            [ABORTED, COMMITTED, KEPT, ABORTED, KEPT, GONE],
            [E20],
        ),
    ],
)
def test_the_fate_of_each_batch(batches, aborted, decided, entries):
    assert run(batches, aborted) == (decided, entries)


def test_aborted_transactions_may_come_in_any_order_and_in_parts():
    entries = [AbortedEntry(1, 30, 40, 41), E20, AbortedEntry(2, 5, 35, 36)]
    batches = [data(5, 2), data(10), abort(20), data(30), abort(35, 2), abort(40)]
    decided = [ABORTED, ABORTED, KEPT, ABORTED, KEPT, KEPT]
    assert run(batches, entries) == (decided, [E20, entries[2], entries[0]])


def test_no_record_behind_the_marker_of_an_entry_counts_as_aborted():
    decided, entries = run([data(9), data(10), commit(15), data(19), data(21)], [E20])
    assert decided == [COMMITTED, ABORTED, KEPT, ABORTED, COMMITTED]
    assert entries == []
