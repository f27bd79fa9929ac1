"""How the operator reaches the API server: one answer for its own requests and for kopf's watches. SHELL."""

import ssl

import kopf
import yaml

from logfleet_operator.tls import lenient


class NoCredentials(Exception):
    """Neither a service account nor a kubeconfig says where the API server is and who we are."""


class Connection(kopf.ConnectionInfo):
    """As kopf's, for the authorities that Kubernetes's own clients take: see `lenient`."""

    def as_ssl_context(self) -> ssl.SSLContext:
        return lenient(super().as_ssl_context())


def login(settings: kopf.OperatorSettings) -> Connection:
    """The pod's service account, else the kubeconfig (KUBECONFIG, ~/.kube/config). Raises NoCredentials."""
    try:
        found = kopf.login_with_service_account(settings=settings)
        found = found or kopf.login_with_kubeconfig(settings=settings)
    except (OSError, yaml.YAMLError, kopf.LoginError) as error:
        raise NoCredentials(f"the kubeconfig cannot be used: {error}") from error
    if found is None:
        raise NoCredentials("run it in a pod with a service account, or set KUBECONFIG")
    return Connection(**vars(found))
