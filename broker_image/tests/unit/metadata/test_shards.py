from hypothesis import given
from hypothesis import strategies as st
from logfleet.metadata.shards import ShardedMap

CHANGES = st.dictionaries(st.integers(0, 40), st.one_of(st.none(), st.integers()))


@given(st.lists(CHANGES))
def test_it_behaves_as_a_dict_that_is_copied_at_every_update(rounds):
    expected: dict[int, int] = {}
    sharded: ShardedMap[int, int] = ShardedMap()
    for changes in rounds:
        before, kept = sharded, dict(expected)
        sharded = sharded.updated(changes)
        for key, value in changes.items():
            if value is None:
                expected.pop(key, None)
            else:
                expected[key] = value
        assert {key: sharded.get(key) for key in range(41) if key in sharded} == expected
        assert len(sharded) == len(expected)
        assert sorted(sharded) == sorted(expected.values())
        assert sorted(before) == sorted(kept.values())


def test_an_update_shares_what_did_not_change():
    before = ShardedMap[int, int]().updated(dict.fromkeys(range(1000), 1))
    after = before.updated({7: 2})
    shared = sum(a is b for a, b in zip(before._shards, after._shards, strict=True))
    assert shared == 255


def test_an_update_with_nothing_is_the_same_map():
    empty = ShardedMap[int, int]()
    assert empty.updated({}) is empty
