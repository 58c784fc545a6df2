"""Single message transforms: one file each, by the names that Connect's users know."""
