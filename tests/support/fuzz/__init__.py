"""Gives converters and transforms hostile records and schemas: each call ends soon, in little room, with a reason."""
