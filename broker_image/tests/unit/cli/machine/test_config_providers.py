"""As Kafka 4.4.0's providers answer, but that what is not there is refused."""

import re
from pathlib import Path

import pytest
from logfleet.cli.broker import read_config
from logfleet.cli.machine.config_providers import resolved
from logfleet.config.keys import ConfigError

PACKAGE = "org.apache.kafka.common.config.provider."
PROVIDERS = {
    "config.providers": "env,file,dir",
    "config.providers.env.class": f"{PACKAGE}EnvVarConfigProvider",
    "config.providers.file.class": f"{PACKAGE}FileConfigProvider",
    "config.providers.dir.class": f"{PACKAGE}DirectoryConfigProvider",
}


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RACK", "zone-a")
    monkeypatch.setenv("OTHER", "zone-b")
    (tmp_path / "d" / "deeper").mkdir(parents=True)
    (tmp_path / "d" / "f.properties").write_text("rack=zone-f\nk\\u0041=x\nv=${env:RACK}\n")
    (tmp_path / "d" / "rack").write_text("zone-d\n")
    return tmp_path


def of(value: str, directory: Path, **params: str) -> str:
    given = {
        f"config.providers.{name.replace('__', '.param.').replace('_', '.')}": text
        for name, text in params.items()
    }
    text = value.replace("DIR", str(directory))
    return resolved({**PROVIDERS, **given, "broker.rack": text})["broker.rack"]


@pytest.mark.parametrize(
    "value, text",
    [
        ("${env:RACK}", "zone-a"),
        ("${file:DIR/d/f.properties:rack}", "zone-f"),
        ("${file:DIR/d/f.properties:kA}", "x"),
        ("${file:DIR/d/f.properties:v}", "${env:RACK}"),
        ("${dir:DIR/d:rack}", "zone-d\n"),
        ("${other:RACK}", "${other:RACK}"),
    ],
)
def test_the_three_of_kafka_are_looked_up(value: str, text: str, directory: Path) -> None:
    assert of(value, directory) == text


@pytest.mark.parametrize(
    "value, why",
    [
        ("${env:NOPE}", "the environment has no such variable"),
        ("${env:p:RACK}", "has no path"),
        ("${file:DIR/d/f.properties:nope}", "has no key nope"),
        ("${file:DIR/d/none:rack}", "cannot be read: No such file"),
        ("${dir:DIR/d:none}", "cannot be read: No such file"),
        ("${dir:DIR:d}", "cannot be read: Is a directory"),
    ],
)
def test_what_is_not_there_is_refused(value: str, why: str, directory: Path) -> None:
    with pytest.raises(ConfigError, match=f"broker.rack: .*{why}"):
        of(value, directory)


def test_a_pattern_allows_variables_of_the_environment(directory: Path) -> None:
    assert of("${env:RACK}", directory, env__allowlist_pattern="R.*") == "zone-a"
    with pytest.raises(ConfigError, match="does not allow it"):
        of("${env:OTHER}", directory, env__allowlist_pattern="R.*")
    with pytest.raises(ConfigError, match="does not allow it"):
        of("${env:RACK}", directory, env__allowlist_pattern="RA")


def test_what_is_no_pattern_and_no_path_is_refused(directory: Path) -> None:
    with pytest.raises(ConfigError, match=r"env\.param\.allowlist\.pattern=\[ is no pattern"):
        of("${env:RACK}", directory, env__allowlist_pattern="[")
    with pytest.raises(ConfigError, match=r"broker\.rack: .* cannot be read"):
        of("${file:DIR/\0:rack}", directory)


def test_paths_may_be_limited(directory: Path) -> None:
    allowed = f"{directory}/d/deeper,{directory}/d/../d"
    assert of("${file:DIR/d/f.properties:rack}", directory, file__allowed_paths=allowed) == "zone-f"
    for value in ("${file:DIR/e/f.properties:rack}", "${file:DIR/d/../e:rack}"):
        with pytest.raises(ConfigError, match=r"is in none of allowed\.paths"):
            of(value, directory, file__allowed_paths=allowed)
    with pytest.raises(ConfigError, match=r"is in none of allowed\.paths"):
        of("${dir:DIR/d:rack}", directory, dir__allowed_paths=f"{directory}/d/deeper")
    for wrong in ("relative", f"{directory}/none"):
        with pytest.raises(ConfigError, match="must be absolute and exist"):
            of("${env:RACK}", directory, file__allowed_paths=wrong)


def test_other_classes_are_refused(directory: Path) -> None:
    with pytest.raises(
        ConfigError, match=re.escape("config.providers.env.class=org.example.Vault: a Java class")
    ):
        of("${env:RACK}", directory, env_class="org.example.Vault")


def test_a_file_and_overrides_are_resolved(directory: Path) -> None:
    file = directory / "server.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in PROVIDERS.items()))
    config = read_config(file, ("broker.rack=${env:RACK}",))
    assert config.broker_rack == "zone-a"
    assert config.unknown == config.without_effect == ()
