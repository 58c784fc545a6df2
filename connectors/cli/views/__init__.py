"""What commands show: first as values, then as text for people."""
