"""Tests of the schema registry's client."""
