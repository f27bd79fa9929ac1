import pytest
from logfleet.cli.contexts.address import Address, choose_address, find_context
from logfleet.cli.contexts.model import Context, Contexts, WrongContext

PROD, TEST = Context("prod", "p:1"), Context("test", "t:1")
BOTH = {"prod": PROD, "test": TEST}


def never() -> Contexts:
    raise AssertionError("the file is not read")


@pytest.mark.parametrize(
    "options, environment, contexts, chosen",
    [
        ((None, None), {}, Contexts(), Address("localhost:9092", "the default")),
        (
            (None, None),
            {},
            Contexts(BOTH, "prod"),
            Address("p:1", "context prod, the current one", PROD),
        ),
        (
            (None, None),
            {"LOGFLEET_CONTEXT": "test"},
            Contexts(BOTH, "prod"),
            Address("t:1", "context test (LOGFLEET_CONTEXT)", TEST),
        ),
        ((None, "test"), {}, Contexts(BOTH, "prod"), Address("t:1", "context test (-c)", TEST)),
        (
            (None, "test"),
            {"LOGFLEET_BOOTSTRAP_SERVER": "e:1", "LOGFLEET_CONTEXT": "prod"},
            Contexts(BOTH, "prod"),
            Address("t:1", "context test (-c)", TEST),
        ),
        (("b:1", "test"), {}, Contexts(BOTH), Address("b:1", "-b", TEST)),
    ],
)
def test_the_first_that_is_given_counts(
    options: tuple[str | None, str | None],
    environment: dict[str, str],
    contexts: Contexts,
    chosen: Address,
) -> None:
    assert choose_address(*options, environment, lambda: contexts) == chosen


def test_an_address_by_itself_needs_no_contexts() -> None:
    environment = {"LOGFLEET_BOOTSTRAP_SERVER": "e:1", "LOGFLEET_CONTEXT": "prod"}
    assert choose_address("b:1", None, environment, never) == Address("b:1", "-b")
    found = choose_address(None, None, environment, never)
    assert found == Address("e:1", "LOGFLEET_BOOTSTRAP_SERVER")


@pytest.mark.parametrize(
    "name, source, sentence",
    [
        ("prd", "-c", "there is no context prd, as -c names it; did you mean prod?"),
        ("x", None, "there is no context x; `logfleet context list` shows what there is"),
    ],
)
def test_a_context_that_is_missing_is_named_with_the_nearest(
    name: str, source: str | None, sentence: str
) -> None:
    with pytest.raises(WrongContext) as found:
        find_context(Contexts(BOTH), name, source)
    assert str(found.value) == sentence
