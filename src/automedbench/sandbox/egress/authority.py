"""Certificate authority of one attempt: made in memory, its key never on a disk, trusted inside the container only.

It can speak for the hosts whose TLS the proxy opens and for no others (X.509 name constraints).
"""

from __future__ import annotations

import functools
import os
import ssl
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from ipaddress import ip_network

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAYS = 30
MAX_CONTEXTS = 64
"""Hosts whose certificates are kept; ``*.name`` covers any number of them."""


class Authority:
    """Certificates for ``hosts`` (names or ``*.name``)."""

    def __init__(self, hosts: Iterable[str]) -> None:
        self._key, self._leaf_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "automedbench proxy of this run")])
        self.context = functools.lru_cache(MAX_CONTEXTS)(self._make_context)
        names = sorted({x509.DNSName(host.removeprefix("*.")) for host in hosts}, key=lambda name: name.value)
        # What is not named at all would be free.
        addresses = [x509.IPAddress(ip_network(all_of_them)) for all_of_them in ("0.0.0.0/0", "::/0")]
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        self._certificate = (
            self._builder(self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.NameConstraints(names, addresses), critical=True)
            .sign(self._key, hashes.SHA256())
        )

    @property
    def pem(self) -> bytes:
        """The authority's certificate."""
        return self._certificate.public_bytes(Encoding.PEM)

    def _make_context(self, host: str) -> ssl.SSLContext:
        """A server's context that speaks for one host, HTTP/1.1 only; another server name ends the handshake."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        # The library takes files only; this one has no name and is gone at once.
        file = os.memfd_create("leaf")
        try:
            os.write(file, self._leaf(host))
            context.load_cert_chain(f"/proc/self/fd/{file}")
        finally:
            os.close(file)

        def check(_: ssl.SSLObject, name: str | None, __: ssl.SSLContext) -> int | None:
            return None if (name or "").lower() == host else int(ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME)

        context.sni_callback = check
        return context

    def _leaf(self, host: str) -> bytes:
        """Key and certificate of one host."""
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host[:64])])
        usage = x509.KeyUsage(True, False, False, False, False, False, False, False, False)
        certificate = (
            self._builder(name, self._leaf_key.public_key())
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        key = self._leaf_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return key + certificate.public_bytes(Encoding.PEM)

    def _builder(self, name: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        begin, own = datetime.now(UTC) - timedelta(days=1), self._key.public_key()
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(begin)
            .not_valid_after(begin + timedelta(days=DAYS))
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(own), critical=False)
        )
