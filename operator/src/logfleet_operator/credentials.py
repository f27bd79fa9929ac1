"""How the operator reaches the API server, for its own requests and for kopf's watches. SHELL."""

import ssl

import kopf
import yaml

from logfleet_operator.tls import lenient


class NoCredentials(Exception):
    """Neither a service account nor a kubeconfig names the API server and the credentials."""


class Connection(kopf.ConnectionInfo):
    """kopf's ConnectionInfo, which accepts the same authorities as Go clients: see `lenient`."""

    def as_ssl_context(self) -> ssl.SSLContext:
        return lenient(super().as_ssl_context())


def login(settings: kopf.OperatorSettings) -> Connection:
    """Read the pod's service account, else the kubeconfig (KUBECONFIG, ~/.kube/config).

    Raises NoCredentials.
    """
    try:
        found = kopf.login_with_service_account(settings=settings)
        found = found or kopf.login_with_kubeconfig(settings=settings)
    except (OSError, yaml.YAMLError, kopf.LoginError) as error:
        raise NoCredentials(f"the kubeconfig cannot be used: {error}") from error
    if found is None:
        raise NoCredentials("run it in a pod with a service account, or set KUBECONFIG")
    return Connection(**vars(found))
