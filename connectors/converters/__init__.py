"""Converters: bytes to Connect's values and back, by the names that Connect's users know."""
