"""The schema registry's client."""
