"""Tests of the transforms and predicates."""
