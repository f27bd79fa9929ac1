from typing import Any

import pytest
from logfleet.resources.document import InvalidResourceError
from logfleet.resources.topic import parse_topic


def document(name: str = "flights", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "logfleet.dev/v1beta1",
        "kind": "Topic",
        "metadata": {"name": name, "labels": {"team": "air"}, "managedFields": [{"any": 1}]},
        "spec": {"clusterRef": {"name": "fleet"}, **spec},
    }


def test_what_is_left_out_has_a_default() -> None:
    topic = parse_topic(document())
    assert topic.name == "flights"
    assert topic.spec.partitions == 1
    assert topic.spec.replicas is None
    assert topic.config == {}
    assert topic.spec.deletion_policy == "Delete"


def test_a_topic_may_be_named_otherwise_than_its_resource() -> None:
    topic = parse_topic(document("flights-2013", topicName="flights_2013.Raw"))
    assert topic.name == "flights_2013.Raw"


def test_configuration_values_become_strings() -> None:
    config = parse_topic(document(config={"retention.ms": 1000, "cleanup.policy": "delete"})).config
    assert config == {"retention.ms": "1000", "cleanup.policy": "delete"}


@pytest.mark.parametrize(
    "spec, complaint",
    [
        ({"partitions": 0}, "spec.partitions: is 0, write a number from 1 to 100000"),
        ({"partitions": "six"}, "spec.partitions: expected `int`, got `str`"),
        ({"replicas": 0}, "spec.replicas: is 0, write a number from 1 to 32767"),
        ({"topicName": "a b"}, "spec.topicName: 'a b' is not a topic name"),
        ({"topicName": ".."}, "spec.topicName: '..' is not a topic name"),
        ({"topicName": "x" * 250}, "spec.topicName: has 250 characters, at most 249 fit"),
        ({"topicName": "__consumer_offsets"}, "is reserved for the brokers"),
        ({"deletionPolicy": "Maybe"}, "spec.deletionPolicy: "),
        ({"config": {"min.cleanable.dirty.ratio": 0.5}}, "write other values in quotes"),
        ({"config": {"preallocate": True}}, "write other values in quotes"),
        ({"clusterRef": {}}, "spec.clusterRef.name: is missing and has no default"),
        ({"clusterRef": {"name": ""}}, "spec.clusterRef.name: is empty, write a Cluster's name"),
        (
            {"clusterRef": {"name": "a", "namespace": "b"}},
            "spec.clusterRef.namespace: no such field; there are: name",
        ),
        (
            {"partition": 3},
            (
                "spec.partition: no such field; there are: clusterRef, config, deletionPolicy, "
                "partitions, replicas, topicName"
            ),
        ),
    ],
)
def test_a_mistake_is_named_with_its_field_and_what_to_write(
    spec: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(InvalidResourceError) as refused:
        parse_topic(document(**spec))
    assert complaint in str(refused.value)


def test_all_mistakes_of_meaning_are_named_at_once() -> None:
    with pytest.raises(InvalidResourceError) as refused:
        parse_topic(document(partitions=-1, replicas=0, topicName="/"))
    assert [problem.path for problem in refused.value.problems] == [
        "spec.topicName",
        "spec.partitions",
        "spec.replicas",
    ]


@pytest.mark.parametrize(
    "whole, complaint",
    [
        (None, "a resource is a mapping with apiVersion, kind, spec"),
        ([], "a resource is a mapping"),
        ({"apiVersion": "v1", "kind": "Topic"}, "apiVersion: is 'v1', write logfleet.dev/v1beta1"),
        ({**document(), "kind": "Cluster"}, "kind: is 'Cluster', write Topic"),
        ({**document(), "metadata": {}}, "metadata.name: is missing"),
    ],
)
def test_a_foreign_document_is_refused(whole: object, complaint: str) -> None:
    with pytest.raises(InvalidResourceError) as refused:
        parse_topic(whole)
    assert complaint in str(refused.value)
