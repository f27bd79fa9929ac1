"""Which image brokers run, and when their feature level is raised. PURE.

First, brokers are replaced and go on writing what the version before can read. Then
`spec.featureLevel` raises what they may write, once all of them support it; the brokers refuse a
raise that is too early (`logfleet.controller.brokers.feature_level`).
"""

from logfleet.controller.brokers.feature_level import FeatureLevel
from logfleet.resources.cluster import ClusterSpec

from logfleet_operator.settings import Settings


def broker_image(spec: ClusterSpec, settings: Settings) -> str:
    """`spec.image`, else the operator's default image, with `spec.version` as its tag if set."""
    if spec.image is not None:
        return spec.image
    if spec.version is None:
        return settings.broker_image
    return _tagged(settings.broker_image, spec.version)


def _tagged(image: str, tag: str) -> str:
    """The same repository with another tag and no digest. A registry's port is not a tag."""
    path, slash, name = image.partition("@")[0].rpartition("/")
    return f"{path}{slash}{name.partition(':')[0]}:{tag}"


def is_due(wanted: int | None, found: FeatureLevel) -> bool:
    """Whether the level is to be raised to `wanted` now."""
    return wanted is not None and found.finalized < wanted <= found.possible


def unmet(wanted: int | None, found: FeatureLevel | None, known: int) -> str:
    """The reason why the level is not as the spec wants it; "" if nothing does.

    found: None if no broker answers. known: the last level that was read, 0 for none; used then.
    """
    if wanted is None or wanted <= (known if found is None else found.finalized):
        return ""
    if found is None:
        return f"feature level {wanted} waits: no broker answers"
    reason = found.objection or (
        f"the brokers' version can do {found.possible} at most; run a later one, or write "
        f"{found.possible}"
    )
    return f"feature level {wanted} waits: {reason}"


def warning(wanted: int | None, level: int) -> str:
    """A warning if the spec asks for less than the level reached; else "". level: 0 if unknown."""
    if wanted is None or wanted >= level:
        return ""
    return (
        f"spec.featureLevel is {wanted}, the brokers are at {level} and never go back: write "
        f"{level}"
    )
