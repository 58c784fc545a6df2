"""What is measured: the rows of docs/performance.md, and what each must come to."""
