"""Which begun erasure a further run goes on with."""

from __future__ import annotations

from connectors.operations.erase.receipt import (
    Receipt,
    SignedReceipt,
    begun_before,
    encoded,
    erased_keys,
    path_of,
)
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
