"""Renews the pages that are open, by events that the worker sends for as long as somebody looks."""
