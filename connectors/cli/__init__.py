"""The command line: one file a command; main.py knows all of them, exits.py how each ends."""
