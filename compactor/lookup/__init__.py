"""Looks up what is kept of some keys."""
