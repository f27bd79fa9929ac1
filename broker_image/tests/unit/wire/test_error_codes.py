import pytest
from logfleet.wire.apis import API_BY_NAME
from logfleet.wire.error_codes import error_finder
from logfleet.wire.messages import (
    ApiVersionsResponse,
    FetchResponse,
    JoinGroupResponse,
    MetadataResponse,
    OffsetFetchResponse,
    ProduceResponse,
)

_Row = ProduceResponse.PartitionProduceResponse
_Topic = ProduceResponse.TopicProduceResponse


@pytest.mark.parametrize(
    "answer, codes",
    [
        (JoinGroupResponse(error_code=79), (79,)),
        (JoinGroupResponse(), ()),
        (
            ProduceResponse(
                responses=[
                    _Topic(partition_responses=[_Row(error_code=3), _Row(), _Row(error_code=6)]),
                    _Topic(partition_responses=[_Row(error_code=3)]),
                ]
            ),
            (3, 6, 3),
        ),
        (
            FetchResponse(
                error_code=70,
                responses=[
                    FetchResponse.FetchableTopicResponse(
                        partitions=[FetchResponse.PartitionData(error_code=1)]
                    )
                ],
            ),
            (70, 1),
        ),
        (MetadataResponse(topics=[MetadataResponse.MetadataResponseTopic(error_code=5)]), (5,)),
        (OffsetFetchResponse(topics=None), ()),  # type: ignore[arg-type]
        (ApiVersionsResponse(error_code=35), (35,)),
    ],
)
def test_codes_are_found_where_the_schema_has_them(answer, codes):
    assert tuple(error_finder(type(answer).__name__)(answer)) == codes


@pytest.mark.parametrize("api", API_BY_NAME.values(), ids=lambda api: api.name)
def test_there_is_a_finder_for_every_answer(api):
    assert tuple(error_finder(f"{api.name}Response")(api.response())) == ()


def test_codes_of_a_large_answer_are_gathered_in_one_list():
    """As many as one hostile request can bring about.

    A copy for each would keep the loop for minutes.
    """
    rows = [_Row(error_code=3)] * 300_000
    answer = ProduceResponse(responses=[_Topic(partition_responses=rows)])
    assert len(error_finder("ProduceResponse")(answer)) == len(rows)
