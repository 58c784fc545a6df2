"""Sends dead letters back to their source topics, each exactly once: steps D1 to D6 of docs/protocol.md.

    D1  run.py       an earlier run is fenced by its transactional id (producer.py); this one takes a number (floor.py)
D2  run.py       the group's positions are read, or what the storage kept of them (floor.py)
D3  plan.py      decides which letters (letters.py) go, and where; producer.py sends them in a transaction
D4  producer.py  the new position goes into the transaction
D5  producer.py  the transaction is committed
D6  floor.py     the position is kept in the connector's storage, too
"""
