"""The key index of runs: hashes of keys with the offsets of their records."""
