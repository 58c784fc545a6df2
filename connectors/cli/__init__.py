"""The command line: one file a command; main.py knows all of them, and how each ends."""
