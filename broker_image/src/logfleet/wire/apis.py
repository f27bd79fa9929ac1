"""The APIs of Kafka 4.4.0: key, name, versions, headers, message classes."""

from dataclasses import dataclass
from functools import cached_property

import msgspec

from logfleet.wire import messages
from logfleet.wire.schema import load_table

API_VERSIONS_KEY = 18


@dataclass(frozen=True)
class Api:
    """One API. Versions are inclusive; those from served_min on have a schema.

    min_version is what a 4.4.0 broker advertises: for Produce it is below served_min. Versions 0-2
    are advertised and refused, because librdkafka otherwise disables compression (KAFKA-18659).
    advertised: False for APIs that only brokers use (Envelope).
    """

    key: int
    name: str
    min_version: int
    max_version: int
    served_min: int
    request_flexible_from: int
    response_flexible_from: int
    advertised: bool

    def serves(self, version: int) -> bool:
        """True if requests of this version can be decoded."""
        return self.served_min <= version <= self.max_version

    def request_header_version(self, version: int) -> int:
        """2 (with tagged fields) for flexible versions, else 1."""
        return 2 if version >= self.request_flexible_from else 1

    def response_header_version(self, version: int) -> int:
        """1 (with tagged fields) for flexible versions, else 0.

        Always 0 for ApiVersions: a client must be able to read the response of any broker
        (KIP-511).
        """
        if self.key == API_VERSIONS_KEY:
            return 0
        return 1 if version >= self.response_flexible_from else 0

    @cached_property
    def request(self) -> type[msgspec.Struct]:
        """Class of the request."""
        return _message_class(self.name + "Request")

    @cached_property
    def response(self) -> type[msgspec.Struct]:
        """Class of the response."""
        return _message_class(self.name + "Response")


def _message_class(name: str) -> type[msgspec.Struct]:
    cls: type[msgspec.Struct] = getattr(messages, name)
    return cls


def _apis() -> dict[int, Api]:
    table = load_table()
    apis = {}
    for message_name, request in table.items():
        if request.kind != "request":
            continue
        assert request.key is not None
        name = message_name.removesuffix("Request")
        low, high = request.versions
        advertised_from = low if request.advertised_from is None else request.advertised_from
        apis[request.key] = Api(
            key=request.key,
            name=name,
            min_version=advertised_from,
            max_version=high,
            served_min=low,
            request_flexible_from=request.flexible,
            response_flexible_from=table[name + "Response"].flexible,
            advertised=request.advertised,
        )
    return dict(sorted(apis.items()))


API_BY_KEY = _apis()
API_BY_NAME = {api.name: api for api in API_BY_KEY.values()}
API_BY_REQUEST_NAME = {api.name + "Request": api for api in API_BY_KEY.values()}


def api_of(request: type[msgspec.Struct]) -> Api:
    """The API of a request class."""
    return API_BY_REQUEST_NAME[request.__name__]
