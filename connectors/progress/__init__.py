"""What a person sees of long work: log lines, or a live display."""
