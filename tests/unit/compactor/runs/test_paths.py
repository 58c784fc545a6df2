"""What the name of a run file says of its job."""

from __future__ import annotations

import pytest

from compactor.runs.paths import RunningBatches, job_of, numbered


@pytest.mark.parametrize(
    ("path", "job"),
    [
        ("runs/5-ab.12-0f.parquet", (5, "ab.12")),
        ("runs/5-ab-0f.parquet", (5, "ab")),
        ("runs/5-ab.parquet", None),
        ("runs/x-ab-0f.parquet", None),
        ("runs/5-ab/0f.parquet", None),
        ("other/5-ab-0f.parquet", None),
    ],
)
def test_epoch_and_job_are_in_the_name(path: str, job: tuple[int, str] | None) -> None:
    """Other names are not ours."""
    assert job_of(path) == job


def test_what_is_behind_the_newest_batch_is_no_longer_under_way() -> None:
    """Of its own life alone, and however many batches had no file; what is numbered higher may still be named."""
    first = RunningBatches("ab")
    path = f"runs/{numbered('5-ab', 3)}-0f.parquet"
    assert [job in first for job in ("ab.1", "ab.3", "cd.3", "ab", "ab.x")] == [True, True, False, False, False]
    after = first.after([path])
    assert [job in after for job in ("ab.2", "ab.3", "ab.4")] == [False, False, True]
    assert after.after([]) == after
    assert after.after(["runs/5-ab.2-0f.parquet", "runs/5-cd.9-0f.parquet"]) == after
