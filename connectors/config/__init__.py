"""Reads and checks worker and connector files, and translates them for clients, engine and people."""
