"""Times as text, as Java's SimpleDateFormat reads and writes them."""
