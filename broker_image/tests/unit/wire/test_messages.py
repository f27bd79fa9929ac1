import pytest
from logfleet.wire import messages
from logfleet.wire.messages import FetchRequest, FetchResponse, OffsetCommitValue


def test_a_class_is_made_once() -> None:
    assert messages.FetchRequest is FetchRequest
    assert FetchRequest.FetchTopic.__qualname__ == "FetchRequest.FetchTopic"
    assert FetchRequest.__module__ == "logfleet.wire.messages"


def test_fields_start_with_the_defaults_of_the_schema() -> None:
    request = FetchRequest()
    assert request.max_bytes == 2**31 - 1
    assert request.replica_id == -1
    assert request.topics == []
    assert request.replica_state is None
    assert FetchResponse.PartitionData().records is None
    assert OffsetCommitValue().leader_epoch == -1


def test_lists_are_not_shared() -> None:
    first, second = FetchRequest(), FetchRequest()
    first.topics.append(FetchRequest.FetchTopic())
    assert second.topics == []


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="NoSuchRequest"):
        _ = messages.NoSuchRequest  # type: ignore[attr-defined]
