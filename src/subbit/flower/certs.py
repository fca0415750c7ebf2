"""Certificates and node keys for a Flower deployment, in one folder.

    DIR/ca.crt, DIR/ca.key                the authority: every node needs ca.crt, ca.key must not be copied
    DIR/server.pem, DIR/server.key        the SuperLink's certificate: localhost, 127.0.0.1 and the hosts given
    DIR/nodes/node-K, node-K.pub          key pair of the node with partition-id K: the private key belongs on that
                                          node only, the public key is registered with the SuperLink

Flower 1.41 reads certificates as PEM and node keys in OpenSSH's format on a NIST curve (P-384 here). Private files have
mode 0600, in a folder with mode 0700. Existing files are never overwritten, since a key may be in use.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import re
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from subbit.core.errors import ConfigError, RunFolderError

VALID_DAYS = 365
LOCAL_HOSTS = ("localhost", "127.0.0.1")
_HOST_NAME = re.compile(
    r"(?=.{1,253}\Z)[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*"
)


def create_certificates(folder: Path, hosts: Sequence[str], nodes: int) -> None:
    """Write all files. `hosts` are the names and addresses under which nodes reach the SuperLink."""
    if not 1 <= nodes <= 100_000:
        raise ConfigError(f"nodes={nodes}: needs 1 to 100000")
    names = [_subject_name(host) for host in dict.fromkeys((*LOCAL_HOSTS, *hosts))]
    if folder.exists() and any(folder.iterdir()):
        raise RunFolderError(f"{folder} is not empty: keys are never overwritten, give a new folder")
    (folder / "nodes").mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    (folder / "nodes").chmod(0o700)

    authority_key, server_key = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    authority_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "subbit certificate authority")])
    authority = (
        _builder(authority_name, authority_name, authority_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA384())
    )
    server_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "subbit SuperLink")])
    server = (
        _builder(server_name, authority_name, server_key.public_key())
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA384())
    )
    _write(folder / "ca.key", _pem(authority_key), private=True)
    _write(folder / "ca.crt", authority.public_bytes(serialization.Encoding.PEM))
    _write(folder / "server.key", _pem(server_key), private=True)
    _write(folder / "server.pem", server.public_bytes(serialization.Encoding.PEM))
    for node in range(nodes):
        key = ec.generate_private_key(ec.SECP384R1())
        _write(folder / "nodes" / f"node-{node}", _openssh(key), private=True)
        public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
        _write(folder / "nodes" / f"node-{node}.pub", public + b"\n")


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _subject_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    if _HOST_NAME.fullmatch(host) is None:
        raise ConfigError(f"host {host!r}: needs a name such as server.example.org or an address, without a port")
    return x509.DNSName(host)


def _builder(subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))  # Tolerates clock differences.
        .not_valid_after(now + datetime.timedelta(days=VALID_DAYS))
    )


def _usage(signs_certificates: bool) -> x509.KeyUsage:
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


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _openssh(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )


def _write(path: Path, data: bytes, private: bool = False) -> None:
    """Create a new file with its final mode, so that a key is never readable by others, not even briefly."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o644)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
