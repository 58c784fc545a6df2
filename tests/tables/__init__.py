"""Tables in real catalogs, read by other engines; these are fetched once: `make tables`."""
