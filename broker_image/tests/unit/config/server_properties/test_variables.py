import re

import pytest
from logfleet.config.broker import broker_config
from logfleet.config.broker_updates import problem_of, refuse_broker_configs
from logfleet.config.keys import ConfigError
from logfleet.config.server_properties.variables import named_providers, resolve


def lookup(path: str, key: str) -> str:
    if key == "none":
        raise ConfigError("", "is not there")
    return f"<{path}|{key}>"


@pytest.mark.parametrize(
    "value, resolved",
    [
        ("${a:k}", "<|k>"),
        ("x ${a:k}-${a:p/q:k}y", "x <|k>-<p/q|k>y"),
        ("$${a:k}", "$<|k>"),
        ("${a: k}", "<| k>"),
        ("${a:}", "<|>"),
        ("${a:p:q:k}", "<p|q:k>"),
        ("${b:k}", "${b:k}"),
        ("${a:k", "${a:k"),
        ("${k}", "${k}"),
        ("${}", "${}"),
        ("${env:X}", "${env:X}"),
    ],
)
def test_variables_are_found_as_kafka_finds_them(value, resolved):
    properties = {"broker.rack": value, "config.providers": "a", "config.providers.a.class": "A"}
    assert resolve(properties, {"a": lookup}) == {"broker.rack": resolved}


def test_what_replaces_a_variable_is_not_looked_into_again():
    assert resolve({"k": "${a:x}"}, {"a": lambda *_: "${a:y}"}) == {"k": "${a:y}"}


def test_a_variable_that_nothing_stands_behind_is_refused_by_the_keys_name():
    with pytest.raises(ConfigError, match=re.escape("k: ${a:none}: is not there")) as caught:
        resolve({"k": "1${a:none}"}, {"a": lookup})
    assert caught.value.key == "k"


def test_providers_have_a_class_and_parameters():
    properties = {
        "config.providers": " a, b ",
        "config.providers.a.class": " A ",
        "config.providers.b.class": "B",
        "config.providers.a.param.x.y": "1",
        "config.providers.c.class": "C",
    }
    assert named_providers(properties) == {"a": ("A", {"x.y": "1"}), "b": ("B", {})}
    assert named_providers({"config.providers": ""}) == {}
    with pytest.raises(ConfigError, match=re.escape("config.providers.a.class is not there")):
        named_providers({"config.providers": "a"})


@pytest.mark.parametrize(
    "values",
    [
        {"config.providers": "env"},
        {"config.providers.env.class": "X"},
        {"log.cleaner.io.max.bytes.per.second": "${env:RATE}"},
        {"listener.name.a.ssl.keystore.password": "${file:/x:password}"},
    ],
    ids=lambda values: next(iter(values)),
)
def test_where_nothing_looks_them_up_they_are_refused(values):
    refusal = refuse_broker_configs(values, is_default=False)
    assert refusal is not None
    (name,) = values
    if name != "config.providers.env.class":  # which no broker knows
        assert "looked up in server.properties only" in refusal.message
        assert problem_of(name, values[name]) is not None


@pytest.mark.parametrize("name", ["config.providers", "config.providers.env.class"])
def test_a_configuration_that_still_has_providers_was_not_resolved(name):
    with pytest.raises(ConfigError, match=r"looked up in server\.properties only"):
        broker_config({name: "env"})
