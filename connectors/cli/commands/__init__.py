"""The commands of `keyfold`, one file each; `connectors/cli/main.py` has their list."""
