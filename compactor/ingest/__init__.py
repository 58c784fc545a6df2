"""Takes a micro-batch in: records become level-0 runs, offsets continue each log."""
