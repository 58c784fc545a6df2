"""The command line: main.py knows all commands and how each ends, `commands` has a file for each."""
