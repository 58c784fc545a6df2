"""What a full fold or a merge does with its logs, whichever process does it."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from compactor.clean.record_filter import RecordFilter
from compactor.runs.scan import OffsetRange
from compactor.runs.writer import RunTarget


class RewritePlan(Struct, frozen=True, kw_only=True):
    """What `keep` leaves of each of `slices` goes by offset into new files of `target`, rolled at its max_bytes.

    `failpoint` is hit as each is closed. `limit` is what all of it reads and writes at most, in bytes per second.
    """

    slices: Sequence[OffsetRange]
    target: RunTarget
    keep: RecordFilter
    failpoint: str
    limit: int | None = None

    def of(self, logs: Sequence[int]) -> RewritePlan:
        """The same for the slices numbered `logs` alone, which are numbered anew."""
        return replace(self, slices=[self.slices[log] for log in logs], keep=self.keep.of(logs))
