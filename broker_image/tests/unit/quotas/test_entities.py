"""Whom quotas may be for, what changes them and what a filter finds; the messages are what Apache Kafka 4.4.0 said."""

import math

import pytest
from logfleet.controller.changes.store_writes import pack
from logfleet.metadata.image import Quotas
from logfleet.metadata.kinds.quotas import QuotaEntity
from logfleet.quotas.entities import (
    ANY,
    DEFAULT,
    EXACT,
    ClientLimit,
    FilterComponent,
    QuotaAlteration,
    address_of,
    alter_quotas,
    describe_quotas,
    entity_of,
    limit_of_client,
    limits_of,
    limits_of_addresses,
)
from logfleet.wire.errors import ErrorCode
from logfleet.wire.refusal import Refusal

U, C, IP = (("user", "u"),), (("client-id", "c"),), (("ip", "1.2.3.4"),)
UC = (("client-id", "c"), ("user", "u"))
DEFAULTS = (("client-id", None), ("user", None))
P, R, X = "producer_byte_rate", "request_percentage", "connection_creation_rate"


@pytest.fixture
def alter(cluster):
    def changed(*alterations: tuple[QuotaEntity, list[tuple[str, float | None]]]):
        steps, answers = alter_quotas(
            cluster.image.quotas,
            [QuotaAlteration(entity, tuple(operations)) for entity, operations in alterations],
        )
        for txn in pack(cluster.epoch, steps):
            assert cluster.commit(txn)
        return [refusal and refusal.message for refusal in answers.values()]

    return changed


def values(cluster):
    return {entity: quotas.values for entity, quotas in cluster.image.quotas.items()}


def test_limits_are_set_changed_and_removed(cluster, alter):
    assert alter((U, [(P, 10.0), (R, 1.5)]), (UC, [(P, 7.0)])) == [None, None]
    assert alter((U, [(P, 11.0), (R, None)])) == [None]
    assert values(cluster) == {U: {P: 11.0}, UC: {P: 7.0}}
    assert alter((U, [(P, None)]), (UC, [(P, None)])) == [None, None]
    assert values(cluster) == {}


def test_what_changes_nothing_writes_nothing(cluster, alter):
    alter((U, [(P, 10.0)]))
    revision = cluster.image.revision
    assert alter((U, [(P, 10.0), (R, None), ("nobody.knows", None)]), (C, [])) == [None, None]
    assert cluster.image.revision == revision


def test_one_refused_entity_leaves_the_others_alone(cluster, alter):
    assert alter((C, [(P, 1.0)]), (U, [(P, 2.0), (R, 0.0)])) == [
        None,
        "Quota request_percentage must be greater than 0",
    ]
    assert values(cluster) == {C: {P: 1.0}}


def test_what_is_named_twice_is_ignored_the_second_time(cluster, alter):
    message = "Ignoring duplicate entity ClientQuotaEntity(entries={user=u})"
    assert alter((U, [(P, 1.0)]), (U, [(P, 2.0)])) == [message]
    assert alter((C, [(P, 1.0), (P, 2.0)])) == [message.replace("user=u", "client-id=c")]
    assert values(cluster) == {U: {P: 1.0}}
    default = alter((DEFAULTS, [(P, 1.0), (P, 2.0)]))
    assert default[0].endswith("{client-id=null, user=null})")


@pytest.mark.parametrize(
    "entity, key, limit, message",
    [
        (U, "nope", 1.0, "Invalid configuration key nope"),
        (U, X, 1.0, f"Invalid configuration key {X}"),
        (IP, P, 1.0, f"Invalid configuration key {P}"),
        (U, P, 0.0, f"Quota {P} must be greater than 0"),
        (U, P, -1.0, f"Quota {P} must be greater than 0"),
        (U, P, math.nan, f"Quota {P} must be a finite number"),
        (U, P, math.inf, f"Quota {P} must be a finite number"),
        (U, P, 1.5, f"{P} cannot be a fractional value."),
        (U, P, 1e19, f"Proposed value for {P} is too large for a LONG."),
        (IP, X, 3e9, f"Proposed value for {X} is too large for an INT."),
        ((), P, 1.0, "Invalid empty client quota entity"),
        ((("group", "g"),), P, 1.0, "Unhandled client quota entity type: group"),
        ((("user", ""),), P, 1.0, "Empty user not supported"),
        (
            (("ip", "1.2.3.4"), ("user", "u")),
            X,
            1.0,
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId",
        ),
        (
            (("ip", "a.host"),),
            X,
            1.0,
            "a.host is not an IP address; names of hosts are not looked up.",
        ),
    ],
)
def test_bad_limits_are_refused(alter, entity, key, limit, message):
    assert alter((entity, [(key, limit)])) == [message]


@pytest.mark.parametrize(
    "entity, key, limit",
    [
        (U, P, 1.0000001),
        (U, P, 2.0**63),
        (U, R, 0.5),
        (U, "controller_mutation_rate", 0.1),
        (IP, X, 2.0**31 - 1),
        ((("ip", None),), X, 1.0),
        ((("ip", "::1"),), X, 1.0),
        (DEFAULTS, "consumer_byte_rate", 1.0),
    ],
)
def test_good_limits_are_taken(cluster, alter, entity, key, limit):
    assert alter((entity, [(key, limit)])) == [None]
    assert values(cluster) == {entity: {key: limit}}


def test_an_entity_is_the_same_in_any_order():
    assert entity_of([("user", "u"), ("client-id", None)]) == (("client-id", None), ("user", "u"))
    assert entity_of([("user", "u"), ("user", "v")]) == (("user", "v"),)


def test_addresses_are_compared_by_what_they_mean():
    assert address_of("::FFFF:1.2.3.4") == address_of("1.2.3.4") == "1.2.3.4"
    assert address_of("0:0::1") == "::1"
    assert address_of("localhost") is None


FOUND: dict[QuotaEntity, Quotas] = {
    each: Quotas({P: 1.0})
    for each in (U, C, UC, DEFAULTS, IP, (("ip", None),), (("user", "v"),), (("user", None),))
}


@pytest.mark.parametrize(
    "components, strict, found",
    [
        ([], False, list(FOUND)),
        ([], True, []),
        ([("user", EXACT, "u")], False, [U, UC]),
        ([("user", EXACT, "u")], True, [U]),
        ([("user", DEFAULT, None)], False, [DEFAULTS, (("user", None),)]),
        ([("user", ANY, None)], True, [U, (("user", "v"),), (("user", None),)]),
        ([("user", ANY, None), ("client-id", ANY, None)], False, [UC, DEFAULTS]),
        ([("client-id", EXACT, "c"), ("user", ANY, None)], True, [UC]),
        ([("client-id", DEFAULT, None), ("user", DEFAULT, None)], True, [DEFAULTS]),
        ([("ip", ANY, None)], False, [IP, (("ip", None),)]),
        ([("user", EXACT, "nobody")], False, []),
    ],
)
def test_a_filter_finds_what_it_names(components, strict, found):
    described = describe_quotas(
        FOUND, [FilterComponent(*each) for each in components], strict=strict
    )
    assert described == [(entity, {P: 1.0}) for entity in found]


@pytest.mark.parametrize(
    "components, message",
    [
        ([("", ANY, None)], "Invalid empty entity type."),
        (
            [("user", EXACT, "a"), ("user", ANY, None)],
            "Entity type user cannot appear more than once in the filter.",
        ),
        (
            [("user", EXACT, None)],
            "Request specified MATCH_TYPE_EXACT, but set match string to null.",
        ),
        (
            [("user", DEFAULT, "x")],
            "Request specified MATCH_TYPE_DEFAULT, but also specified a match string.",
        ),
        (
            [("user", ANY, "x")],
            "Request specified MATCH_TYPE_SPECIFIED, but also specified a match string.",
        ),
        ([("user", 3, None)], "Unknown match type 3"),
        (
            [("ip", ANY, None), ("user", ANY, None)],
            (
                "Invalid entity filter component combination. IP filter component should not be used "
                "with user or clientId filter component."
            ),
        ),
    ],
)
def test_a_filter_that_makes_no_sense_is_refused(components, message):
    refusal = describe_quotas({}, [FilterComponent(*each) for each in components], strict=False)
    assert refusal == Refusal(ErrorCode.INVALID_REQUEST, message)


def test_a_type_that_is_not_known_yet_is_one_of_a_later_version():
    refusal = describe_quotas({}, [FilterComponent("group", ANY)], strict=False)
    assert refusal == Refusal(ErrorCode.UNSUPPORTED_VERSION, "Unsupported entity type group")


LEVELS: list[tuple[QuotaEntity, tuple[str | None, str | None]]] = [
    ((("client-id", "c"), ("user", "u")), ("u", "c")),
    ((("client-id", None), ("user", "u")), ("u", "c")),
    ((("user", "u"),), ("u", None)),
    ((("client-id", "c"), ("user", None)), ("u", "c")),
    ((("client-id", None), ("user", None)), ("u", "c")),
    ((("user", None),), ("u", None)),
    ((("client-id", "c"),), (None, "c")),
    ((("client-id", None),), (None, "c")),
]


@pytest.mark.parametrize("level", range(len(LEVELS)))
def test_the_most_specific_limit_counts(level):
    limits = {entity: float(n) for n, (entity, _) in enumerate(LEVELS) if n >= level}
    user, client_id = LEVELS[level][1]
    assert limit_of_client(limits, "u", "c") == ClientLimit(level, user, client_id)


def test_limits_of_others_do_not_count():
    limits: dict[QuotaEntity, float] = {
        (("client-id", "other"), ("user", "u")): 1.0,
        (("user", "other"),): 2.0,
    }
    assert limit_of_client(limits, "u", "c") is None


def test_a_client_without_an_id_has_its_users_limits_only():
    limits = {entity: float(n) for n, (entity, _) in enumerate(LEVELS)}
    assert limit_of_client(limits, "u", "") == ClientLimit(2.0, "u", None)
    assert limit_of_client(limits, "v", "") == ClientLimit(5.0, "v", None)
    assert limit_of_client({(("client-id", None),): 1.0}, "u", "") is None


def test_limits_are_sorted_by_what_they_limit():
    quotas: dict[QuotaEntity, Quotas] = {U: Quotas({P: 1.0, R: 2.0}), C: Quotas({R: 3.0})}
    assert limits_of(quotas, R) == {U: 2.0, C: 3.0}
    addresses: dict[QuotaEntity, Quotas] = {
        (("ip", "::ffff:1.2.3.4"),): Quotas({X: 4.0}),
        (("ip", None),): Quotas({X: 5.0}),
    }
    assert limits_of_addresses(addresses) == {"1.2.3.4": 4.0, None: 5.0}


def test_a_stored_limit_of_a_name_that_is_no_address_is_nobodys():
    """Earlier versions adopted such quotas of Kafka's."""
    named: dict[QuotaEntity, Quotas] = {(("ip", "client.example"),): Quotas({X: 1.0})}
    assert limits_of_addresses(named) == {}
