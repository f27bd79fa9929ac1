import pytest
from logfleet.controller.changes.config_changes import ConfigChange
from logfleet.controller.changes.logger_levels import LEVELS, level_name, refuse_logger_changes

SET, DELETE, APPEND = 0, 1, 2


@pytest.mark.parametrize(
    "change, code, sentence",
    [
        (
            ("root", SET, "x"),
            40,
            (
                "Cannot set the log level of root to x as it is not a supported log level. "
                "Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN"
            ),
        ),
        (("root", SET, "info"), 40, "to info as it is not"),
        (("root", SET, None), 42, "Null value not supported for : root"),
        (("root", DELETE, None), 42, "Removing the log level of the root logger is not allowed"),
        (
            ("root", APPEND, "INFO"),
            42,
            "APPEND operation is not allowed for the BROKER_LOGGER resource",
        ),
        (("root", 7, "INFO"), 42, "Unknown operation type 7 is not allowed for the BROKER_LOGGER"),
        (("no.such", SET, "INFO"), 40, "Logger no.such does not exist!"),
        (("no.such", DELETE, None), 40, "Logger no.such does not exist!"),
    ],
)
def test_what_kafka_refuses_is_refused(change, code, sentence):
    refusal = refuse_logger_changes([ConfigChange(*change)], {"root"})
    assert refusal is not None
    assert refusal.error == code
    assert sentence in refusal.message


def test_levels_may_be_set_and_those_of_others_than_root_removed():
    changes = [ConfigChange("root", SET, name) for name in LEVELS]
    for change in changes:
        assert refuse_logger_changes([change], {"root"}) is None
    assert refuse_logger_changes([ConfigChange("a", DELETE)], {"root", "a"}) is None


@pytest.mark.parametrize(
    "number, name",
    [
        (0, "TRACE"),
        (5, "TRACE"),
        (10, "DEBUG"),
        (15, "INFO"),
        (30, "WARN"),
        (40, "ERROR"),
        (99, "FATAL"),
    ],
)
def test_pythons_levels_have_kafkas_names(number, name):
    assert level_name(number) == name
