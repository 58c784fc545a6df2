"""A connector's converters, transforms and predicates, made from its settings and applied to what was read."""
