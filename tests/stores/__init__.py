"""Real object stores, or their emulators, that are fetched once: `make stores`."""
