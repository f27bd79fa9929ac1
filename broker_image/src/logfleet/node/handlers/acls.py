"""DescribeAcls, CreateAcls and DeleteAcls, as in a Kafka without an authorizer: SECURITY_DISABLED.

An UNKNOWN type closes the connection, as in Kafka (AclApis); other undefined numbers do not.
"""

from typing import Any, Final

from logfleet.net.connection import CloseConnection
from logfleet.node.dispatch import Handler, RequestContext
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)

DISABLED: Final = ErrorCode.SECURITY_DISABLED
NO_AUTHORIZER: Final = "No Authorizer is configured."
UNKNOWN: Final = 0
"""The unknown value of a resource type, pattern type, operation or permission."""


def describe_acls(
    _broker: object, request: DescribeAclsRequest, _context: RequestContext
) -> DescribeAclsResponse:
    _check_filter(request)
    message = "No Authorizer is configured on the broker"
    return DescribeAclsResponse(error_code=DISABLED, error_message=message)


def create_acls(
    _broker: object, request: CreateAclsRequest, _context: RequestContext
) -> CreateAclsResponse:
    for each in request.creations:
        _check(each.resource_type, each.resource_pattern_type, each.operation, each.permission_type)
    result = CreateAclsResponse.AclCreationResult(error_code=DISABLED, error_message=NO_AUTHORIZER)
    return CreateAclsResponse(results=[result] * len(request.creations))


def delete_acls(
    _broker: object, request: DeleteAclsRequest, _context: RequestContext
) -> DeleteAclsResponse:
    for each in request.filters:
        _check_filter(each)
    kind = DeleteAclsResponse.DeleteAclsFilterResult
    result = kind(error_code=DISABLED, error_message=NO_AUTHORIZER)
    return DeleteAclsResponse(filter_results=[result] * len(request.filters))


def _check_filter(each: DescribeAclsRequest | DeleteAclsRequest.DeleteAclsFilter) -> None:
    _check(
        each.resource_type_filter, each.pattern_type_filter, each.operation, each.permission_type
    )


def _check(*types: int) -> None:
    if UNKNOWN in types:
        raise CloseConnection("an ACL or a filter of ACLs has an UNKNOWN element")


HANDLERS: dict[type, Handler[Any]] = {
    DescribeAclsRequest: describe_acls,
    CreateAclsRequest: create_acls,
    DeleteAclsRequest: delete_acls,
}
