"""How the operator reaches the API server: one answer for its own requests and for kopf's watches. SHELL."""

import kopf
import yaml


class NoCredentials(Exception):
    """Neither a service account nor a kubeconfig says where the API server is and who we are."""


def login(settings: kopf.OperatorSettings) -> kopf.ConnectionInfo:
    """The pod's service account, else the kubeconfig (KUBECONFIG, ~/.kube/config). Raises NoCredentials."""
    try:
        found = kopf.login_with_service_account(settings=settings)
        found = found or kopf.login_with_kubeconfig(settings=settings)
    except (OSError, yaml.YAMLError, kopf.LoginError) as error:
        raise NoCredentials(f"the kubeconfig cannot be used: {error}") from error
    if found is None:
        raise NoCredentials("run it in a pod with a service account, or set KUBECONFIG")
    return found
