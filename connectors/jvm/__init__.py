"""Starts Java quickly: finding it, its artifacts, class data sharing."""
