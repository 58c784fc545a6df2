"""Starts programs, meters them, keeps results and renders them; knows no particular program or row."""
