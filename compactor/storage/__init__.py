"""Keeps bytes: the storage protocol and its implementations."""
