"""Where this machine fetches Python packages, told to a build as a secret: never in an image, never in the tree."""

import os
import sys
from pathlib import Path

from e2e.lab.commands import run

# Settings of pip that mean the same inside a build; folders of this machine do not.
PASSED_ON = (
    "default-timeout",
    "extra-index-url",
    "index-url",
    "no-index",
    "proxy",
    "retries",
    "timeout",
    "trusted-host",
)
TRUSTED = Path("/etc/ssl/certs/ca-certificates.crt")
CA_IN_BUILD = "/run/secrets/ca"


def pip_conf(listed: str) -> str:
    """A pip.conf from what `pip config list` prints: lines of `section.name='value'`."""
    values: dict[str, str] = {}
    for line in listed.splitlines():
        key, _, quoted = line.partition("=")
        name = key.rpartition(".")[2]
        if name in PASSED_ON:
            values[name] = quoted.strip("'\"").replace("\\n", "\n    ")
    settings = [f"{name} = {value}" for name, value in sorted(values.items())]
    return "\n".join(["[global]", f"cert = {CA_IN_BUILD}", *settings, ""])


def build_secrets(folder: Path) -> dict[str, Path]:
    """The secrets `pip` and `ca` of the Dockerfile, as files that only root can read."""
    listed = run(sys.executable, "-m", "pip", "config", "list")
    if "index-url" not in listed and (index := os.environ.get("UV_DEFAULT_INDEX")):
        listed += f"\nglobal.index-url='{index}'\n"
    file = folder / "pip.conf"
    folder.mkdir(parents=True, exist_ok=True)
    file.touch(mode=0o600)
    file.write_text(pip_conf(listed))
    return {"pip": file, "ca": TRUSTED}
