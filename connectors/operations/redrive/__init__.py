"""Sends dead letters back to their source topics, each exactly once: steps D1 to D6 of docs/protocol.md.

        run.py       a topic that is asked for must be the connector's, or that of a letter
    D1  run.py       an earlier run is fenced by its transactional id (producer.py); this one takes a number (floor.py)
    D2  run.py       the group's positions are read, or what the storage kept of them (floor.py)
        run.py       the letters that have gone are read, to know their records (plan.py)
        floor.py     the positions are kept in the connector's storage: if that cannot be written, nothing is sent
    D3  plan.py      decides which letters (letters.py) go, and to which topic; producer.py sends them in a transaction
    D4  producer.py  the new position goes into the transaction
    D5  producer.py  the transaction is committed
    D6  floor.py     the position is kept in the connector's storage, too
        run.py       at a partition's end D3 to D6 are taken once more, without letters, so that its position is new

What has no number is no step of the protocol.
"""
