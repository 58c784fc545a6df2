"""Which settings of Kafka clients a connector may override, by Kafka Connect's policies (KIP-458)."""

from __future__ import annotations

from pathlib import Path

import pytest

from connectors.config.errors import FaultyConfigError
from connectors.config.files import checked, load_connector, load_worker
from connectors.config.worker import POLICY
from tests.support.cli import connector_file, worker_file

JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p";'
LOG_IN = {
    "consumer.override.security.protocol": "SASL_PLAINTEXT",
    "consumer.override.sasl.mechanism": "PLAIN",
    "consumer.override.sasl.jaas.config": JAAS,
    "producer.override.security.protocol": "SASL_PLAINTEXT",
    "producer.override.sasl.mechanisms": "PLAIN",
    "producer.override.sasl.username": "u",
    "producer.override.sasl.password": "p",
}
OTHERS = {
    "consumer.override.fetch.min.bytes": "2",
    "producer.override.linger.ms": "5",
    "admin.override.ssl.ca.location": "probe",
}
EVERY = {**LOG_IN, **OTHERS}


@pytest.mark.parametrize(
    ("policy", "refused"),
    [
        (None, set()),
        ("All", set()),
        ("Principal", set(OTHERS)),
        ("principal", set(OTHERS)),
        ("None", set(EVERY)),
    ],
)
@pytest.mark.parametrize("over_rest", [False, True])
def test_each_override_that_is_not_allowed_has_its_fault(
    tmp_path: Path, policy: str | None, refused: set[str], over_rest: bool
) -> None:
    """With Connect's sentence, its key, and what to do; also a connector of a file is held to it, as in Connect."""
    worker = load_worker(worker_file(tmp_path, **({} if policy is None else {POLICY: policy})))
    path = connector_file(tmp_path, **EVERY)
    settings = load_connector(path).config.given
    faults = {}
    try:
        if over_rest:
            checked(settings, worker)
        else:
            load_connector(path, worker)
    except FaultyConfigError as error:
        faults = {fault.key: fault.text for fault in error.faults}
    assert set(faults) == refused
    for key, text in faults.items():
        name = key.partition(".override.")[2]
        said = f"The '{str(policy).capitalize()}' policy does not allow '{name}' to be overridden in the connector conf"
        assert text.startswith(said)
        assert text.endswith(f"by {POLICY} of the worker file; remove the key.")
        assert ("sasl.jaas.config" in text) is (str(policy).lower() == "principal" or name == "sasl.jaas.config")


def test_the_worker_s_own_settings_are_not_held_to_it(tmp_path: Path) -> None:
    """The policy is about connectors."""
    worker = load_worker(worker_file(tmp_path, **{POLICY: "None", "consumer.fetch.min.bytes": "2"}))
    assert checked(load_connector(connector_file(tmp_path)).config.given, worker).consumer_override == {}


def test_a_policy_that_there_is_not_is_refused(tmp_path: Path) -> None:
    """As are Connect's names of classes."""
    with pytest.raises(FaultyConfigError, match=r"policy: \"Some\" is not allowed: allowed is all, principal or none"):
        load_worker(worker_file(tmp_path, **{POLICY: "Some"}))
