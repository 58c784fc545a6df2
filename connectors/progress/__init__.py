"""Shows a person the progress of long work: log lines, or a live display."""
