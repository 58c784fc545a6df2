"""Predicates, which say to which records a transform is applied (KIP-585): one file each."""
