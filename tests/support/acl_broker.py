"""A broker with ACLs: the listener `sasl` has one user, who may do only what a test grants."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from connectors.dev.embedded_kafka import EmbeddedKafka, free_port
from connectors.kafka.client_settings import Setting
from tests.support.kafka import TIMEOUT_S, admin, wait_until
from tests.support.secured_broker import PLAIN

USER: Final = "keyfold"
_PASSWORD: Final = "only-for-this-test"
Right = tuple[str, str, str]
"""Kind of resource, its name, operation: `("TOPIC", "t", "READ")`."""


class AclKafka(EmbeddedKafka):
    """A broker whose clients may do anything by `bootstrap`, and what USER is granted by `sasl`."""

    def __init__(self, folder: Path) -> None:
        self.sasl = f"127.0.0.1:{free_port()}"
        guarded = {
            "listeners": f"SASL_PLAINTEXT://{self.sasl}",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{PLAIN} required user_{USER}="{_PASSWORD}";',
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        }
        super().__init__(folder, properties=guarded)

    def login(self) -> Mapping[str, Setting]:
        """Returns a client's settings as USER."""
        return {
            "bootstrap.servers": self.sasl,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": USER,
            "sasl.password": _PASSWORD,
        }

    def grant(self, rights: Iterable[Right]) -> None:
        """Grants USER these rights."""
        client, wanted = admin(self.bootstrap), list(rights)
        for answer in client.create_acls([_acl(AclBinding, right) for right in wanted]).values():
            answer.result(TIMEOUT_S)
        wait_until(lambda: all(self.has(right) for right in wanted), "the rights count")

    def revoke(self, right: Right) -> None:
        """Revokes this right of USER."""
        client = admin(self.bootstrap)
        for answer in client.delete_acls([_acl(AclBindingFilter, right)]).values():
            answer.result(TIMEOUT_S)
        wait_until(lambda: not self.has(right), "the right does not count any more")

    def has(self, right: Right) -> bool:
        """Whether USER has this right."""
        client = admin(self.bootstrap)
        return bool(client.describe_acls(_acl(AclBindingFilter, right)).result(TIMEOUT_S))


def _acl(kind: type[Any], right: Right) -> Any:
    resource, name, operation = right
    allowed = (AclOperation[operation], AclPermissionType.ALLOW)
    return kind(ResourceType[resource], name, ResourcePatternType.LITERAL, f"User:{USER}", "*", *allowed)
