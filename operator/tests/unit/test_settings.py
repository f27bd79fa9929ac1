import pytest
from logfleet_operator.settings import Settings, SettingsError


def test_only_the_brokers_image_has_no_default() -> None:
    settings = Settings.from_environment({"LOGFLEET_BROKER_IMAGE": "b:1"})
    assert settings == Settings(broker_image="b:1")
    assert settings.in_scope("anywhere")


def test_everything_can_be_said() -> None:
    settings = Settings.from_environment(
        {
            "LOGFLEET_BROKER_IMAGE": "b:1",
            "LOGFLEET_ETCD_IMAGE": "e:1",
            "LOGFLEET_NAMESPACES": "a,b",
            "LOGFLEET_HTTP_PORT": "9000",
            "LOGFLEET_LOG_LEVEL": "debug",
            "LOGFLEET_LOG_FORMAT": "text",
        }
    )
    assert settings == Settings("b:1", "e:1", frozenset("ab"), 9000, "debug", log_json=False)
    assert settings.in_scope("a")
    assert not settings.in_scope("c")


@pytest.mark.parametrize(
    "name, value",
    [
        ("LOGFLEET_BROKER_IMAGE", ""),
        ("LOGFLEET_HTTP_PORT", "http"),
        ("LOGFLEET_HTTP_PORT", "70000"),
        ("LOGFLEET_LOG_LEVEL", "loud"),
    ],
)
def test_a_wrong_variable_is_named(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=name):
        Settings.from_environment({"LOGFLEET_BROKER_IMAGE": "b:1", name: value})
