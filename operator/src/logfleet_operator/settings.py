"""The operator's settings: environment variables, set by its chart. PURE."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

DEFAULT_ETCD_IMAGE: Final = "quay.io/coreos/etcd:v3.6.5"


class SettingsError(ValueError):
    """An environment variable is missing or malformed; the message names it."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The operator's settings.

    broker_image, etcd_image: the defaults for Clusters. namespaces: empty means all. identity: the
    pod's name, which tells the processes of a release apart. lease, lease_namespace: the Lease by
    which these elect one, and by which other releases know this one (`ownership`). Without a
    lease_namespace there is no election: a second operator would write the same objects.
    """

    broker_image: str
    etcd_image: str = DEFAULT_ETCD_IMAGE
    namespaces: frozenset[str] = frozenset()
    http_port: int = 8080
    log_level: str = "info"
    log_json: bool = True
    identity: str = ""
    lease: str = "logfleet-operator"
    lease_namespace: str = ""

    @property
    def release(self) -> str:
        """NAMESPACE/NAME of the Lease, which identifies this release to others; "" without."""
        return f"{self.lease_namespace}/{self.lease}" if self.lease_namespace else ""

    @property
    def scopes(self) -> list[str]:
        """The scopes to list and watch: each named namespace, or "" for all at once."""
        return sorted(self.namespaces) or [""]

    def in_scope(self, namespace: str) -> bool:
        return not self.namespaces or namespace in self.namespaces

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "Settings":
        """Raises SettingsError."""
        image = environment.get("LOGFLEET_BROKER_IMAGE", "")
        if not image:
            raise SettingsError("LOGFLEET_BROKER_IMAGE is not set: name the brokers' image")
        port = environment.get("LOGFLEET_HTTP_PORT", "8080")
        if not port.isdecimal() or not 0 <= int(port) <= 65535:
            raise SettingsError(f"LOGFLEET_HTTP_PORT is {port!r}, write a port")
        level = environment.get("LOGFLEET_LOG_LEVEL", "info")
        if level not in {"debug", "info", "warning", "error"}:
            raise SettingsError(
                f"LOGFLEET_LOG_LEVEL is {level!r}, write debug, info, warning, error"
            )
        namespaces = environment.get("LOGFLEET_NAMESPACES", "")
        return cls(
            broker_image=image,
            etcd_image=environment.get("LOGFLEET_ETCD_IMAGE") or DEFAULT_ETCD_IMAGE,
            namespaces=frozenset(filter(None, namespaces.split(","))),
            http_port=int(port),
            log_level=level,
            log_json=environment.get("LOGFLEET_LOG_FORMAT", "json") == "json",
            lease=environment.get("LOGFLEET_LEASE") or "logfleet-operator",
            lease_namespace=environment.get("LOGFLEET_LEASE_NAMESPACE", ""),
            identity=environment.get("LOGFLEET_POD_NAME", "") or environment.get("HOSTNAME", ""),
        )
