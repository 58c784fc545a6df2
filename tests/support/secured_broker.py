"""A broker that also listens with TLS, with a password and with client certificates, all of the test's own making."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from connectors.dev.embedded_kafka import EmbeddedKafka, free_port
from tests.support.kafka import TIMEOUT_S, admin

USER: Final = "keyfold"
PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
_KEY: Final = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
_DAYS: Final = ("-days", "2")


class Authority:
    """A certificate authority in a folder, made with openssl, which every Java on Debian brings along."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self.certificate = folder / "ca.pem"
        self._openssl("req", "-x509", *_KEY, *_DAYS, "-subj", "/CN=ca", "-keyout", "ca.key", "-out", "ca.pem")
        (folder / "names").write_text("subjectAltName=IP:127.0.0.1")

    def issue(self, name: str) -> Path:
        """One PEM file with the key and the certificate of `name`, which is good for 127.0.0.1 and no other host."""
        key, request, certificate = (f"{name}.{end}" for end in ("key", "csr", "crt"))
        self._openssl("req", *_KEY, "-subj", f"/CN={name}", "-keyout", key, "-out", request)
        signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", *_DAYS, "-extfile", "names")
        self._openssl("x509", "-req", "-in", request, *signed, "-out", certificate)
        both = self.folder / f"{name}.pem"
        both.write_text("".join((self.folder / part).read_text() for part in (key, certificate)))
        return both

    def pkcs12(self, pem: Path, password: str) -> Path:
        """The key and certificate of `issue` as a PKCS12 store."""
        store = pem.with_suffix(".p12")
        self._openssl("pkcs12", "-export", "-in", str(pem), "-out", str(store), "-passout", f"pass:{password}")
        return store

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self.folder, capture_output=True, check=True)


class SecuredKafka(EmbeddedKafka):
    """A broker with two more listeners: `sasl` asks for the password of USER, `tls` for a client's certificate."""

    def __init__(self, folder: Path, authority: Authority, password: str) -> None:
        self.sasl, self.tls = (f"127.0.0.1:{free_port()}" for _ in range(2))
        self._password = password
        super().__init__(folder, properties=self._secured(authority.issue("broker"), authority.certificate))

    def add_user(self) -> None:
        """Gives USER its password for SCRAM too; PLAIN has it in the broker's settings."""
        credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        client = admin(self.bootstrap)  # it has to live until the answer is there
        wanted = UserScramCredentialUpsertion(USER, credential, self._password.encode())
        client.alter_user_scram_credentials([wanted])[USER].result(TIMEOUT_S)

    def _secured(self, keys: Path, trusted: Path) -> Mapping[str, str]:
        return {
            "listeners": f"SASL_SSL://{self.sasl},SSL://{self.tls}",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(keys),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(trusted),
            "listener.name.ssl.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{PLAIN} required user_{USER}="{self._password}";',
            "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": f"{SCRAM} required;",
        }
