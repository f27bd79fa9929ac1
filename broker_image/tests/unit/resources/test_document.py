"""Documents of another version: what is left out, what is kept, what is still refused."""

import pytest
from logfleet.resources.cluster import ClusterResource, parse_cluster
from logfleet.resources.document import InvalidResourceError, without_unknown


def test_unknown_fields_are_left_out_at_any_depth_and_named_as_in_the_document():
    document = {
        "apiVersion": "logfleet.dev/v1beta1",
        "kind": "Cluster",
        "metadata": {"name": "fleet", "managedFields": []},
        "spec": {
            "networkPolicy": True,
            "pools": [
                {"name": "main", "replicas": 3, "storage": {"size": "1Gi", "kind": "fast"}},
                {"name": "extra", "color": "red", "replicas": 1, "storage": {"size": "1Gi"}},
            ],
            "metadata": {"managed": {"replicas": 1, "zones": ["a"]}},
            "config": {"any.key": 1},
        },
        "status": {"whatever": 1},
    }
    known, unknown = without_unknown(document, ClusterResource)
    assert unknown == [
        "spec.networkPolicy",
        "spec.pools[0].storage.kind",
        "spec.pools[1].color",
        "spec.metadata.managed.zones",
    ]
    cluster = parse_cluster(known)
    assert [pool.name for pool in cluster.spec.pools] == ["main", "extra"]
    assert cluster.config == {"any.key": "1"}
    assert "networkPolicy" in document["spec"], "the document itself is not changed"


@pytest.mark.parametrize("document", [None, [], "text", {"spec": 1}, {"spec": {"pools": "many"}}])
def test_what_has_another_form_is_left_to_the_parser(document):
    known, unknown = without_unknown(document, ClusterResource)
    assert (known, unknown) == (document, [])
    with pytest.raises(InvalidResourceError):
        parse_cluster(known)
