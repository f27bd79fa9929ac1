"""The lab's certificate authority, its leaves, and the kubeconfigs that name them.

They have no more extensions than those of the distributions of Kubernetes that people run: strict
verifiers, as Python 3.13 is by default, refuse them, and the operator must not.
"""

import datetime as dt
import ipaddress
import json
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from e2e.lab.settings import API_SERVER, API_SERVICE_IP, HOST_IP, Settings

VALID_DAYS = 3650
RSA_BITS = 2048
PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
PublicKey = ec.EllipticCurvePublicKey | rsa.RSAPublicKey
API_NAMES = (
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
    "localhost",
)


@dataclass(frozen=True, slots=True)
class Subject:
    """Whom a leaf speaks for: Kubernetes takes the user from the common name, the group from the organisation.

    is_rsa: else elliptic, which spark-submit's Kubernetes client reads with BouncyCastle only.
    """

    file: str
    common_name: str
    organization: str | None = None
    dns_names: tuple[str, ...] = ()
    ips: tuple[str, ...] = ()
    has_kubeconfig: bool = False
    is_rsa: bool = False


@dataclass(frozen=True, slots=True)
class Style:
    """What the certificates of a distribution have of what RFC 5280 asks for.

    has_key_ids: subject and authority key identifiers. has_key_usage: of the authority.
    """

    name: str
    has_key_ids: bool
    has_key_usage: bool


EKS = Style("eks", has_key_ids=False, has_key_usage=True)
"""Amazon EKS (kubernetes-client/python#2394)."""
MICROK8S = Style("microk8s", has_key_ids=True, has_key_usage=False)
"""MicroK8s (canonical/microk8s#4864); new ones have it since June 2026."""


@dataclass(frozen=True, slots=True)
class Authority:
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate
    style: Style


def subjects(settings: Settings) -> list[Subject]:
    """Every leaf of the lab."""
    masters = "system:masters"
    return [
        Subject(
            "apiserver",
            "kube-apiserver",
            dns_names=API_NAMES,
            ips=(HOST_IP, "127.0.0.1", API_SERVICE_IP),
        ),
        Subject("apiserver-kubelet", "kube-apiserver-kubelet-client", masters),
        Subject("front-proxy", "front-proxy-client"),
        Subject("admin", "lab-admin", masters, has_kubeconfig=True, is_rsa=True),
        Subject("kcm", "system:kube-controller-manager", has_kubeconfig=True),
        Subject("scheduler", "system:kube-scheduler", has_kubeconfig=True),
        Subject("proxy", "system:kube-proxy", has_kubeconfig=True),
        *(
            Subject(
                zone.node,
                f"system:node:{zone.node}",
                "system:nodes",
                dns_names=(zone.node,),
                ips=(zone.node_ip,),
                has_kubeconfig=True,
            )
            for zone in settings.zones
        ),
    ]


def make_authority(style: Style, now: dt.datetime) -> Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(f"{style.name}-ca", None)
    builder = _unsigned(name, name, key.public_key(), now).add_extension(
        x509.BasicConstraints(ca=True, path_length=None), critical=True
    )
    if style.has_key_usage:
        builder = builder.add_extension(_key_usage(signs_certificates=True), critical=True)
    builder = _with_key_ids(builder, style, key.public_key(), key.public_key())
    return Authority(key, builder.sign(key, hashes.SHA256()), style)


def make_leaf(
    authority: Authority, subject: Subject, now: dt.datetime
) -> tuple[PrivateKey, x509.Certificate]:
    """A key and its certificate, good for client and server."""
    key: PrivateKey
    if subject.is_rsa:
        key = rsa.generate_private_key(public_exponent=65537, key_size=RSA_BITS)
    else:
        key = ec.generate_private_key(ec.SECP256R1())
    issuer = authority.certificate
    name = _name(subject.common_name, subject.organization)
    usages = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
    signer = authority.key.public_key()
    builder = (
        _unsigned(name, issuer.subject, key.public_key(), now)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    )
    builder = _with_key_ids(builder, authority.style, key.public_key(), signer)
    names: list[x509.GeneralName] = [x509.DNSName(dns) for dns in subject.dns_names]
    names += [x509.IPAddress(ipaddress.ip_address(ip)) for ip in subject.ips]
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return key, builder.sign(authority.key, hashes.SHA256())


def kubeconfig(settings: Settings, user: str) -> str:
    """A kubeconfig (JSON, which is YAML) that names the user's certificate by path."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "lab",
        "clusters": [
            {
                "name": "lab",
                "cluster": {
                    "server": API_SERVER,
                    "certificate-authority": str(settings.pki / "ca.crt"),
                },
            }
        ],
        "users": [
            {
                "name": user,
                "user": {
                    "client-certificate": str(settings.pki / f"{user}.crt"),
                    "client-key": str(settings.pki / f"{user}.key"),
                },
            }
        ],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": user}}],
    }
    return json.dumps(config, indent=1)


def ensure_pki(settings: Settings) -> None:
    """Write keys, certificates and kubeconfigs, once per lab."""
    done = settings.pki / "done"
    if done.exists():
        return
    settings.pki.mkdir(parents=True, exist_ok=True)
    now = dt.datetime.now(dt.UTC)
    authority = make_authority(EKS, now)
    write_pair(settings.pki, "ca", authority.key, authority.certificate)
    accounts = ec.generate_private_key(ec.SECP256R1())
    write_pair(settings.pki, "sa", accounts, None)
    (settings.pki / "sa.pub").write_bytes(
        accounts.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    for subject in subjects(settings):
        key, certificate = make_leaf(authority, subject, now)
        write_pair(settings.pki, subject.file, key, certificate)
        if subject.has_kubeconfig:
            settings.kubeconfig(subject.file).write_text(kubeconfig(settings, subject.file))
    done.touch()


def _unsigned(
    name: x509.Name, issuer: x509.Name, key: PublicKey, now: dt.datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(days=VALID_DAYS))
    )


def _with_key_ids(
    builder: x509.CertificateBuilder,
    style: Style,
    key: PublicKey,
    signer: ec.EllipticCurvePublicKey,
) -> x509.CertificateBuilder:
    """If certificates of this style have them."""
    if not style.has_key_ids:
        return builder
    return builder.add_extension(
        x509.SubjectKeyIdentifier.from_public_key(key), critical=False
    ).add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer), critical=False)


def _name(common_name: str, organization: str | None) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
    if organization:
        attributes.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
    return x509.Name(attributes)


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def write_pair(
    folder: Path,
    name: str,
    key: PrivateKey,
    certificate: x509.Certificate | None,
) -> None:
    """NAME.key, which only its owner may read, and NAME.crt, both PEM."""
    file = folder / f"{name}.key"
    file.touch(mode=0o600)
    file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    if certificate is not None:
        pem = certificate.public_bytes(serialization.Encoding.PEM)
        (folder / f"{name}.crt").write_bytes(pem)
