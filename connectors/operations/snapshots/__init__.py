"""What a person does with snapshots that are there: lists, shows, verifies, pins and compares them."""
