"""Whether the records of dead letters would be let go again, as the connector is set now."""

from __future__ import annotations

import pytest

from connectors.chain.spec import ChainSpec, chain_spec
from connectors.errors import PortionLateError
from connectors.operations.redrive.trial import rejections
from connectors.registry.patience import Patience
from connectors.rejection import Stage
from tests.support.dead_letters import KEY_OF_VALUE, letter

RAW = chain_spec({})
JSON = chain_spec(KEY_OF_VALUE)
DROPPING = chain_spec({"transforms": "d", "transforms.d.type": "Filter"})


@pytest.mark.parametrize(
    ("chain", "value", "has_key", "keyed", "stage"),
    [
        (JSON, b'{"id": 1}', True, True, None),
        (JSON, b"{bad", True, True, Stage.VALUE_CONVERTER),
        (JSON, b"[1]", True, True, Stage.TRANSFORMATION),
        (RAW, b"{bad", True, True, None),
        (RAW, b"v", False, True, Stage.TASK_PUT),
        (RAW, b"v", False, False, None),
        (RAW, None, True, True, None),
        (DROPPING, b"v", False, True, None),
    ],
)
def test_a_record_is_tried_as_a_connector_reads_it(
    chain: ChainSpec, value: bytes | None, has_key: bool, keyed: bool, stage: Stage | None
) -> None:
    """By converters, transforms, and the need for a key; what is filtered is not let go."""
    tried = letter(1, value)
    tried = tried if has_key else type(tried)(0, 1, 7, None, value, (), {})
    good = letter(2, b'{"id": 2}')
    outcomes = rejections(chain, [("t", tried), ("t", good)], Patience(), keyed=keyed)
    assert [each and each.stage for each in outcomes] == [stage, None]


def test_what_takes_too_long_is_not_tried() -> None:
    """Nothing is said of any of them then."""
    with pytest.raises(PortionLateError):
        rejections(JSON, [("t", letter(1, b"{bad"))], Patience(stopped=lambda: True), keyed=True)
