import pytest
from logfleet.log.names import INDEX, LOG, TIME_INDEX, offset_file
from logfleet.log.segments.swap_steps import completion, find_interrupted, promotion, replaced_files

BASE = "00000000000000000100"
SIDECARS = (INDEX, TIME_INDEX)


def test_the_log_gets_the_suffix_that_counts_last():
    renames = promotion(100, SIDECARS)
    assert len(renames) == 3
    assert renames[-1] == (f"{BASE}.log.cleaned", f"{BASE}.log.swap")


def test_nothing_is_to_do_where_no_swap_was_interrupted():
    found = find_interrupted([f"{BASE}.log", f"{BASE}.log.deleted", "x.swap", "y.log.cleaned"])
    assert (found.remove, found.swaps, found.segments) == ((), (), ())


@pytest.mark.parametrize("done", range(4))
def test_a_crash_in_the_middle_of_the_promotion_undoes_it_until_the_log_is_renamed(done):
    renames = promotion(100, SIDECARS)
    names = [target for _, target in renames[:done]] + [source for source, _ in renames[done:]]
    found = find_interrupted(names)
    if done < 3:
        assert sorted(found.remove) == sorted(names)
        assert (found.swaps, found.segments) == ((), ())
    else:
        assert found.remove == ()
        assert sorted(found.swaps) == sorted(names)
        assert found.segments == (100,)


@pytest.mark.parametrize("done", range(4))
def test_a_crash_in_the_middle_of_the_completion_is_completed(done):
    renames = completion(100, SIDECARS)
    names = [target for _, target in renames[:done]] + [source for source, _ in renames[done:]]
    found = find_interrupted(names)
    assert found.remove == ()
    assert sorted(found.swaps) == sorted(source for source, _ in renames[done:])
    assert found.segments == ((100,) if done == 0 else ())


def test_the_next_segment_being_made_does_not_undo_a_swap():
    later = offset_file(200, LOG) + ".cleaned"
    found = find_interrupted([f"{BASE}.log.swap", later])
    assert found.segments == (100,)
    assert found.remove == (later,)


def test_of_a_split_that_was_not_complete_nothing_stays():
    names = [f"{BASE}.log.swap", offset_file(50, LOG) + ".cleaned"]
    assert sorted(find_interrupted(names).remove) == sorted(names)


@pytest.mark.parametrize("promoted", range(3))
@pytest.mark.parametrize("removed", range(4))
def test_a_crash_while_an_incomplete_swap_is_removed_leaves_none_that_counts(promoted, removed):
    renames = promotion(100, SIDECARS)
    names = [target for _, target in renames[:promoted]]
    names += [source for source, _ in renames[promoted:]]
    left = find_interrupted(find_interrupted(names).remove[removed:])
    assert (left.swaps, left.segments) == ((), ())


def test_an_index_of_transactions_shares_its_segments_fate():
    found = find_interrupted([f"{BASE}.txnindex.cleaned", f"{BASE}.txnindex.swap"])
    assert len(found.remove) == 2


def test_what_was_replaced_are_the_files_of_the_segments_in_between():
    names = [offset_file(n, suffix) for n in (99, 100, 150, 200) for suffix in (LOG, ".snapshot")]
    names += [f"{BASE}.log.swap", f"{BASE}.txnindex"]
    assert replaced_files(names, 100, 200) == [
        f"{BASE}.log",
        "00000000000000000150.log",
        f"{BASE}.txnindex",
    ]
