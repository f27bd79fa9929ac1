"""Every field of a request is taken to each boundary of its type, one at a time."""

from logfleet.wire import messages as m
from logfleet.wire.apis import API_BY_NAME
from logfleet.wire.schema import load_table

from e2e.compare.corpora.bases import BASES
from e2e.compare.corpora.boundaries import Change, changed, changes, fields_of, values


def changes_of(request: object, name: str, version: int) -> list[Change]:
    schema = load_table()[type(request).__name__]
    (field,) = [each for each in schema.fields if each.python_name == name]
    return list(changes(request, field, schema.structs, version))  # type: ignore[arg-type]


def test_a_number_goes_to_its_ends_and_around_zero() -> None:
    request = m.HeartbeatRequest(generation_id=1)
    assert [each.value for each in changes_of(request, "generation_id", 4)] == [
        -2,
        -1,
        0,
        2,
        -(2**31),
        2**31 - 1,
    ]


def test_null_is_tried_only_in_versions_that_have_it() -> None:
    schema = load_table()["MetadataRequest"].fields
    (topics,) = [each for each in schema if each.python_name == "topics"]
    assert None not in values(topics, [], 0)
    assert None in values(topics, [], 1)


def test_fields_of_the_first_row_are_changed_where_they_stand() -> None:
    kind = m.FetchRequest
    topic = kind.FetchTopic(topic="t", partitions=[kind.FetchPartition()])
    request = kind(topics=[topic])
    paths = {change.path for change in changes_of(request, "topics", 4)}
    assert ("topics",) in paths
    assert ("topics", 0, "partitions", 0, "fetch_offset") in paths
    assert not any("topic_id" in path for path in paths), "version 4 has names"
    changed(request, Change(("topics", 0, "partitions", 0, "fetch_offset"), 9))
    assert request.topics[0].partitions[0].fetch_offset == 9


def test_each_field_is_tried_in_its_oldest_and_newest_version() -> None:
    fields = dict(fields_of(API_BY_NAME["Fetch"], 12))
    assert fields["replica_id"] == {4, 12}
    assert fields["session_id"] == {7, 12}
    assert "replica_state" not in fields


def test_every_request_to_start_from_is_of_an_api() -> None:
    assert BASES.keys() <= API_BY_NAME.keys()
