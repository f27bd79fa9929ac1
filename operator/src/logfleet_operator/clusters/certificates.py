"""Certificates of a Cluster's managed etcd: an authority, one for the members, one for the brokers.

Made as strict verifiers want them (RFC 5280; Python 3.13 and later set VERIFY_X509_STRICT): the
authority has critical basic constraints and key usage and a subject key id, the others name the
authority's key and their purpose. The brokers' certificate has no host names: etcd would compare
those of a client with the address that it comes from.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from logfleet.resources.cluster import ClusterResource

from logfleet_operator import names
from logfleet_operator.clusters import manifests
from logfleet_operator.clusters.observed import ObjectConflict
from logfleet_operator.clusters.steps import IssueCertificate
from logfleet_operator.names import Manifest

AUTHORITY_DAYS: Final = 3650
LEAF_DAYS: Final = 730
# A third of a leaf's life. etcd reads a renewed one at the next handshake; brokers are restarted.
RENEW_BEFORE: Final = timedelta(days=LEAF_DAYS // 3)
# Clocks of nodes differ.
BACKDATE: Final = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Issued:
    """PEM texts; not_after in UTC."""

    certificate: bytes
    key: bytes
    not_after: datetime


def is_renewed(not_after: datetime, authority_not_after: datetime, now: datetime) -> bool:
    """True if a leaf should be issued again: it ends soon, and a new one would end later.

    A new one would not end later in the last months of the authority, which no leaf outlives.
    """
    return not_after < min(now + RENEW_BEFORE, authority_not_after)


def not_after(secret: Mapping[str, Any]) -> datetime | None:
    """Return the end of the certificate in a Secret of type kubernetes.io/tls.

    None if it is unreadable.
    """
    text = (secret.get("data") or {}).get("tls.crt", "")
    try:
        return x509.load_pem_x509_certificate(base64.b64decode(text)).not_valid_after_utc
    except ValueError:
        return None


def make_authority(common_name: str, now: datetime) -> Issued:
    """A new authority that signs the members' and the brokers' certificates."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(common_name)
    not_after = now + timedelta(days=AUTHORITY_DAYS)
    certificate = (
        _builder(name, name, key.public_key(), now, not_after)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Issued(_pem(certificate), _pem_key(key), not_after)


def issue(
    authority_certificate: bytes,
    authority_key: bytes,
    common_name: str,
    host_names: list[str],
    now: datetime,
) -> Issued:
    """A certificate signed by the authority (PEM texts), for a server if there are host names.

    A member is a server and, to its peers, a client; a broker is only a client. Raises ValueError,
    TypeError or UnsupportedAlgorithm if the authority's texts are malformed.
    """
    authority = x509.load_pem_x509_certificate(authority_certificate)
    signer = serialization.load_pem_private_key(authority_key, None)
    if not isinstance(signer, ec.EllipticCurvePrivateKey):
        raise TypeError("its key is no elliptic curve key")
    if signer.public_key() != authority.public_key():
        raise ValueError("its key is not that of its certificate")
    key = ec.generate_private_key(ec.SECP256R1())
    not_after = min(now + timedelta(days=LEAF_DAYS), authority.not_valid_after_utc)
    purposes = [ExtendedKeyUsageOID.CLIENT_AUTH]
    if host_names:
        purposes.append(ExtendedKeyUsageOID.SERVER_AUTH)
    builder = (
        _builder(_name(common_name), authority.subject, key.public_key(), now, not_after)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
    )
    if host_names:
        alternatives = x509.SubjectAlternativeName([x509.DNSName(host) for host in host_names])
        builder = builder.add_extension(alternatives, critical=False)
    return Issued(_pem(builder.sign(signer, hashes.SHA256())), _pem_key(key), not_after)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    now: datetime,
    not_after: datetime,
) -> x509.CertificateBuilder:
    return x509.CertificateBuilder(
        issuer_name=issuer,
        subject_name=subject,
        public_key=key,
        serial_number=x509.random_serial_number(),
        not_valid_before=now - BACKDATE,
        not_valid_after=not_after,
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "logfleet"),
            # RFC 5280: ub-common-name is 64.
            x509.NameAttribute(NameOID.COMMON_NAME, common_name[:64]),
        ]
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _pem_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def authority_secret(cluster: ClusterResource, name: str, now: datetime) -> Manifest:
    """The Secret of a new authority."""
    subject = f"{cluster.metadata.namespace}.{cluster.metadata.name} etcd authority"
    made = make_authority(subject, now)
    return _secret(cluster, name, made, made.certificate)


def certificate_secret(
    cluster: ClusterResource, authority: Manifest, action: IssueCertificate, now: datetime
) -> Manifest:
    """A Secret with a new certificate.

    Raises ObjectConflict if the `authority` Secret cannot sign.
    """
    data = authority.get("data") or {}
    try:
        signer, key = (base64.b64decode(data.get(name, "")) for name in ("tls.crt", "tls.key"))
        issued = issue(signer, key, action.common_name, list(action.host_names), now)
    except (TypeError, ValueError, UnsupportedAlgorithm) as error:
        raise ObjectConflict(
            f"Secret {action.authority} cannot sign {action.secret} ({error}): restore it from "
            "a backup"
        ) from error
    return _secret(cluster, action.secret, issued, signer)


def _secret(cluster: ClusterResource, name: str, issued: Issued, authority: bytes) -> Manifest:
    metadata = {
        "name": name,
        "labels": names.labels(cluster.metadata.name, names.ETCD),
        "annotations": {
            names.EXPIRY_ANNOTATION: f"{issued.not_after.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
        },
    }
    pem = {"tls.crt": issued.certificate, "tls.key": issued.key, "ca.crt": authority}
    return manifests.owned(
        cluster.metadata,
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": metadata,
            "type": "kubernetes.io/tls",
            "data": {key: base64.b64encode(text).decode() for key, text in pem.items()},
        },
    )
