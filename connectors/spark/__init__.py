"""The one Spark session of a worker."""
