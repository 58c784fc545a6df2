"""Tests of the chain of converters and transforms."""
