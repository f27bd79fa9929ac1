"""The bill of materials of a package: what its lock installs, with hashes and licences (CycloneDX 1.6).

It is made here and not by cyclonedx-bom, which brings twenty packages and reads either the hashes of a lock or the
licences of an environment. The licences are those of the packages that `make setup` installed from the same locks.
"""

import json
import re
from importlib.metadata import PackageNotFoundError, metadata
from typing import Any, Final

REQUIREMENT: Final = re.compile(
    r"^([a-z0-9._-]+)==([^ ;\\]+)(?: ; ([^\\\n]+?))? \\\n((?:    --hash=.*\n?)+)", re.MULTILINE
)
HASH: Final = re.compile(r"--hash=sha256:([0-9a-f]{64})")
CLASSIFIER: Final = "License :: OSI Approved :: "


def bill_of(package: str, version: str, lock: str, created: str) -> str:
    """The document as JSON; equal for equal locks. created: a time in ISO 8601."""
    components = [_component(*found.groups()) for found in REQUIREMENT.finditer(lock)]
    root = f"pkg:pypi/{package}@{version}"
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": created,
            "component": {
                "type": "application",
                "bom-ref": root,
                "name": package,
                "version": version,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
                "purl": root,
            },
        },
        "components": components,
        "dependencies": [{"ref": root, "dependsOn": [each["bom-ref"] for each in components]}],
    }
    return json.dumps(document, indent=2) + "\n"


def _component(name: str, version: str, marker: str | None, hashes: str) -> dict[str, Any]:
    purl = f"pkg:pypi/{name}@{version}"
    component: dict[str, Any] = {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
        # one of each file that the index has: which one is installed depends on the machine
        "externalReferences": [
            {
                "type": "distribution",
                "url": f"https://pypi.org/project/{name}/{version}/",
                "hashes": [{"alg": "SHA-256", "content": each} for each in HASH.findall(hashes)],
            }
        ],
    }
    if licence := licence_of(name):
        component["licenses"] = [licence]
    if marker is not None:
        component["properties"] = [{"name": "logfleet:installed-if", "value": marker}]
    return component


def licence_of(name: str) -> dict[str, Any] | None:
    """The licence as the installed package states it; None if it is not installed or states none."""
    try:
        about = metadata(name)
    except PackageNotFoundError:
        return None
    if "License-Expression" in about:
        return {"expression": about["License-Expression"]}
    names = [
        each.removeprefix(CLASSIFIER)
        for each in about.get_all("Classifier") or []
        if each.startswith(CLASSIFIER)
    ]
    (plain, *_) = about.get_all("License") or [""]
    text = " or ".join(names) or plain.strip().partition("\n")[0]
    return {"license": {"name": text}} if text else None
