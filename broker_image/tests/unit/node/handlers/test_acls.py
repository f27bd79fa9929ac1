from typing import Any

import pytest
from logfleet.net.connection import CloseConnection
from logfleet.node.handlers.acls import create_acls, delete_acls, describe_acls
from logfleet.wire.codec import encode
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest

FILTER: dict[str, Any] = {
    "resource_type_filter": 1,
    "pattern_type_filter": 1,
    "operation": 1,
    "permission_type": 1,
}
ACL: dict[str, Any] = {
    "resource_type": 2,
    "resource_pattern_type": 3,
    "operation": 3,
    "permission_type": 3,
}


@pytest.mark.parametrize("version", range(1, 4))
def test_there_is_no_authorizer(host, version) -> None:
    context = host.context(version)
    described = describe_acls(host, DescribeAclsRequest(**FILTER), context)
    created = create_acls(
        host, CreateAclsRequest(creations=[CreateAclsRequest.AclCreation(**ACL)] * 2), context
    )
    deleted = delete_acls(
        host, DeleteAclsRequest(filters=[DeleteAclsRequest.DeleteAclsFilter(**FILTER)]), context
    )
    for answer in (described, created, deleted):
        encode(answer, version)
    rows: list[Any] = [described, *created.results, *deleted.filter_results]
    assert [row.error_code for row in rows] == [ErrorCode.SECURITY_DISABLED] * 4


@pytest.mark.parametrize("field", range(4))
def test_what_is_claimed_to_be_unknown_closes_the_connection(host, field) -> None:
    wrong_filter = {**FILTER, list(FILTER)[field]: 0}
    wrong_acl = {**ACL, list(ACL)[field]: 0}
    context = host.context(3)
    acl = CreateAclsRequest.AclCreation(**wrong_acl)
    each = DeleteAclsRequest.DeleteAclsFilter(**wrong_filter)
    with pytest.raises(CloseConnection):
        describe_acls(host, DescribeAclsRequest(**wrong_filter), context)
    with pytest.raises(CloseConnection):
        create_acls(host, CreateAclsRequest(creations=[acl]), context)
    with pytest.raises(CloseConnection):
        delete_acls(host, DeleteAclsRequest(filters=[each]), context)
