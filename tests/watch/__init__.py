"""Alerts and dashboard in a real Prometheus that watches a real worker: `make watch`."""
