"""The Parquet files of runs: paths, writing, reading, checksums."""
