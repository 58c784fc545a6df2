"""A worker on a store whose lists are late, which no store may be that keyfold is used on."""

from __future__ import annotations

from pathlib import Path

import pytest

from connectors.dev.embedded_kafka import EmbeddedKafka
from tests.faults.cases import Case
from tests.faults.scenario import CALM, Scenario
from tests.support.stores.chosen import FAULTS, STORE, chosen_store
from tests.support.stores.faulty_proxy import NO_FAULTS, Faults

pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize("store", ["moto", "s3proxy", "azurite"])
def test_it_waits_by_name_and_goes_on_once_lists_are_complete(
    store: str, tmp_path: Path, broker: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit that no list shows is not believed: nothing is lost or repeated, also by a worker killed meanwhile."""
    monkeypatch.setenv(STORE, store)
    monkeypatch.setenv(FAULTS, "slow")
    with chosen_store(tmp_path) as proxy:
        assert proxy is not None
        proxy.faults = NO_FAULTS
        with Scenario(tmp_path / "case", broker.bootstrap, 1, CALM) as scenario:
            case = Case(scenario)
            worker = scenario.running()
            proxy.faults = Faults(lists_late_s=2)
            case.is_waiting("was created, but is not listed")
            worker.kill()
            scenario.start()
            case.is_waiting("is not listed")
            proxy.faults = NO_FAULTS
            case.recovers()
            assert case.violations() == []
            assert proxy.counts["late"] > 0
