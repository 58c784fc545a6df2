"""Arrow makes arrays without pandas, which can be imported all the same."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import sys
from compactor.arrow_start import begin_without_pandas

begin_without_pandas()
import pyarrow as pa

pa.array([1, None])
assert "pandas" not in sys.modules
from compactor.model.key_hash import hashes_of

keys = [b"%d" % number for number in range(2_000)]
many, few = (hashes_of(pa.array(some), pa.array([0] * len(some), pa.int32())) for some in (keys, keys[:3]))
assert "pandas" in sys.modules
assert many[:3].tolist() == few.tolist()
begin_without_pandas()
"""


def test_arrow_begins_without_pandas_and_keys_are_hashed_with_it_later() -> None:
    """In a process of its own, as Arrow tries to import pandas once; few keys are hashed without it to the same."""
    ended = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")
