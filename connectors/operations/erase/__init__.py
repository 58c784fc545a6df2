"""Erases keys from what a connector keeps: `keyfold erase`, by steps E1 to E9 of docs/protocol.md.

begin.py      E1  what is kept of the keys, what has to go, what refuses
tombstones.py E2  a tombstone for each kept value, sent to the source
run.py        E3 to E9 in their order
search.py     E8  every file that keyfold has, looked through for the keys
receipt.py    what was done; signing.py signs it
verify.py     `keyfold erase verify`
"""
