import pytest
from logfleet.wire.codec import encode_bytes
from logfleet.wire.encoded_rows import EncodedRows
from logfleet.wire.messages import DescribeConfigsResponse

_Row = DescribeConfigsResponse.DescribeConfigsResult
_Config = DescribeConfigsResponse.DescribeConfigsResourceResult


def row(number: int) -> _Row:
    configs = [_Config(name=f"key.{index}", value="5") for index in range(number % 3)]
    return _Row(resource_type=2, resource_name=f"t-{number}", configs=configs)


@pytest.mark.parametrize("version", range(1, 5))
@pytest.mark.parametrize("count", [0, 1, 126, 127, 300])
def test_rows_encoded_one_by_one_are_the_whole_message(version: int, count: int) -> None:
    message = DescribeConfigsResponse()
    rows = EncodedRows(message, version)
    for number in range(count):
        rows.add(rows.encode(row(number)))
    message.throttle_time_ms = 7
    whole = DescribeConfigsResponse(throttle_time_ms=7, results=[row(n) for n in range(count)])
    assert b"".join(rows.parts()) == encode_bytes(whole, version)
    assert all(rows.parts()), "asyncio would try to send an empty buffer for ever"


def test_a_row_that_is_added_again_is_kept_once() -> None:
    rows = EncodedRows(DescribeConfigsResponse(), 4)
    encoded = rows.encode(_Row(error_code=3, resource_name="t"))
    for _ in range(2):
        rows.add(encoded)
    assert (rows.size, rows.errors) == (2 * len(encoded.data), [3, 3])
    _, first, second, _ = rows.parts()
    assert first is second is encoded.data
