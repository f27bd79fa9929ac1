"""Which image brokers run, and when their feature level is raised. PURE.

First phase: brokers are replaced, and go on writing what the version before reads. Second: `spec.featureLevel` raises what they may write, once all of them
can do it; the brokers refuse what would be too early (`logfleet.control.brokers.feature_level`).
"""

from logfleet.control.brokers.feature_level import FeatureLevel
from logfleet.resources.cluster import ClusterSpec

from logfleet_operator.settings import Settings


def broker_image(spec: ClusterSpec, settings: Settings) -> str:
    """`spec.image`, else the operator's default image, of `spec.version` if that is said."""
    if spec.image is not None:
        return spec.image
    if spec.version is None:
        return settings.broker_image
    return _tagged(settings.broker_image, spec.version)


def _tagged(image: str, tag: str) -> str:
    """The same repository with another tag; a digest goes. A registry's port is no tag."""
    path, slash, name = image.partition("@")[0].rpartition("/")
    return f"{path}{slash}{name.partition(':')[0]}:{tag}"


def is_due(wanted: int | None, found: FeatureLevel) -> bool:
    """Whether the level is to be raised to `wanted` now."""
    return wanted is not None and found.finalized < wanted <= found.possible


def unmet(wanted: int | None, found: FeatureLevel | None, known: int) -> str:
    """What keeps the level from being as written; "" if nothing does.

    found: None if no broker answers; then known counts: the level that was told last, 0 for none.
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
    """That the spec asks for less than there is; "" if it does not. level: 0 if it is not known."""
    if wanted is None or wanted >= level:
        return ""
    return f"spec.featureLevel is {wanted}, the brokers are at {level} and never go back: write {level}"
