"""How strictly the operator verifies the certificates of servers, on all its TLS connections."""

import ssl


def lenient(context: ssl.SSLContext) -> ssl.SSLContext:
    """`context` without VERIFY_X509_STRICT; chain, dates and host name are still verified.

    Python 3.13 sets this flag in each default context. It refuses authorities without key
    identifiers (EKS, kubernetes-client/python#2394) or without key usage (MicroK8s before June
    2026, canonical/microk8s#4864), which Kubernetes's Go clients accept. A user of a managed
    cluster cannot replace its authority.
    """
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context
