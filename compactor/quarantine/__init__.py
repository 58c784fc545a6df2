"""Keeps damaged partitions in quarantine while the others go on."""
