"""A Quix Streams program that keeps the latest value of each key; runs where quixstreams is installed.

python quix_latest.py BOOTSTRAP SOURCE OUTPUT GROUP STATE-FOLDER
"""

import sys

from quixstreams import Application, State


def latest(value: bytes, state: State) -> bytes:
    """Stores `value`, or deletes it if null, in the state of the record's key; returns it."""
    if value is None:
        state.delete("latest")
    else:
        state.set_bytes("latest", value)
    return value


def main(bootstrap: str, source: str, output: str, group: str, folder: str) -> None:
    """Runs until the process is ended."""
    app = Application(
        broker_address=bootstrap,
        consumer_group=group,
        auto_offset_reset="earliest",
        processing_guarantee="exactly-once",
        state_dir=folder,
    )
    plain = {"key_deserializer": "bytes", "value_deserializer": "bytes"}
    written = {"key_serializer": "bytes", "value_serializer": "bytes"}
    app.dataframe(app.topic(source, **plain)).apply(latest, stateful=True).to_topic(app.topic(output, **written))
    app.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
