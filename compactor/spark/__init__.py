"""Runs Python in Spark: numbered tasks, and errors that keep their type."""
