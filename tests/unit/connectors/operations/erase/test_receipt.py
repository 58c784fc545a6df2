"""Which begun erasure a further run goes on with."""

from __future__ import annotations

from msgspec.structs import replace

from compactor.storage.limits import LARGE_BYTES
from connectors.cli.commands.erase import MOST_KEYS
from connectors.cli.views.erasure import erased_text
from connectors.operations.erase.receipt import (
    MOST_FINDINGS,
    PENDING,
    Finding,
    Receipt,
    SignedReceipt,
    Tombstone,
    begun_before,
    encoded,
    erased_keys,
    path_of,
)
from connectors.operations.erase.run import Erasure
from tests.support.memory.storage import MemoryStorage

KEY = b"alice"
SALT = b"\1" * 16


def _keep(storage: MemoryStorage, receipt_id: str, salt: str) -> None:
    receipt = Receipt(
        id=receipt_id,
        connector="c",
        catalog_id="C",
        storage="s",
        snapshot_location=None,
        table="none",
        salt=salt,
        keys=erased_keys(SALT, [KEY]),
        began_ms=1,
    )
    storage.write(path_of(receipt_id), encoded(SignedReceipt(receipt)))


def test_a_damaged_receipt_is_passed_over() -> None:
    """Its salt is no hexadecimal number: the one before it is gone on with."""
    storage = MemoryStorage()
    _keep(storage, "1", SALT.hex())
    _keep(storage, "2", "no number")
    receipt = begun_before(storage, "C", [KEY], None)
    assert receipt is not None
    assert receipt.id == "1"
    assert begun_before(storage, "C", [b"bob"], None) is None


def test_a_receipt_of_as_many_keys_as_may_be_is_read_back() -> None:
    """With the longest name of a topic, all three hashes of each key, and as many findings as are named."""
    topic, part = "t" * 249, MOST_KEYS // 20
    keys = [b'{"id":%d}' % number for number in range(part)]
    tombstones = [
        Tombstone(key=MOST_KEYS, topic=topic, partition=99, offset=1 << 40, timestamp_ms=1 << 41, sent=True)
    ] * part
    left = Finding(what="tombstone", level="runs", file="f" * 300, key=MOST_KEYS, topic=topic, partition=9, offset=1)
    receipt = Receipt(
        id="1", connector="c", catalog_id="C", storage="s", snapshot_location=None, table="none", salt=SALT.hex(),
        keys=erased_keys(SALT, keys, keys), began_ms=1, tombstones=tuple(tombstones), state=PENDING,
    )  # fmt: skip
    with_findings = replace(receipt, findings=(left,) * MOST_FINDINGS)
    findings = len(encoded(SignedReceipt(with_findings))) - len(encoded(SignedReceipt(receipt)))
    assert 20 * len(encoded(SignedReceipt(receipt))) + findings < LARGE_BYTES
    assert "10,000 tombstones or more are kept" in erased_text(Erasure("1.json", SignedReceipt(with_findings)))
