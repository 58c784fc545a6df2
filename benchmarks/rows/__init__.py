"""The rows of docs/performance.md: what is compared or measured, and the values that it has to reach."""
