"""The tables of the test: how each is made, what is in it at Debezium's snapshot, and what happens to it afterwards.

Statements stand for transactions of their own. Those of one round run after one another, table by table, so that the
changes of all tables are mixed; a fault strikes between or inside rounds (`story.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SCHEMA: Final = "shop"
KEYLESS_CHANGES: Final = 30 + 10 + 1 + 1
"""How many records Debezium sends of the table `keyless`: rows, updates, deletes, inserts."""
_ODD: Final = "Größen alt"
_ODD_QUOTED: Final = f'{SCHEMA}."{_ODD}"'


@dataclass(frozen=True)
class Table:
    """A table; `key`: the columns by which its rows are told apart here; `rounds`: statements by round."""

    name: str
    create: str
    rows: str
    rounds: tuple[str, ...]
    key: tuple[str, ...] = ("id",)
    # Debezium takes the key of a table without a primary key from these columns (`message.key.columns`).
    message_key: str | None = None

    @property
    def quoted(self) -> str:
        """Its name as SQL has it."""
        return f'{SCHEMA}."{self.name.replace(chr(34), chr(34) * 2)}"'


def _single(statement: str, times: int) -> str:
    """Returns a block that runs `statement` in `times` transactions of its own; `i` counts them from 1."""
    return f"DO $$ BEGIN FOR i IN 1..{times} LOOP {statement}; COMMIT; END LOOP; END $$;"


TABLES: Final[tuple[Table, ...]] = (
    Table(
        "accounts",  # what pgbench does: small transactions on few rows
        "id int PRIMARY KEY, owner text NOT NULL, balance numeric(12,2) NOT NULL, changed timestamptz",
        "SELECT n, 'owner ' || n, 0, now() FROM generate_series(1, 200) n",
        tuple(
            _single(
                "UPDATE shop.accounts SET balance = balance + 0.01 * i, changed = now() WHERE id = 1 + i * 7 % 200",
                2_000,
            )
            for _ in range(3)
        ),
    ),
    Table(
        "order_lines",  # a composite key
        "order_id int, line smallint, article text, quantity int, PRIMARY KEY (order_id, line)",
        "SELECT n / 4, n % 4, 'article ' || n, n FROM generate_series(1, 400) n",
        (
            "UPDATE shop.order_lines SET quantity = -1 WHERE line = 2;",
            "DELETE FROM shop.order_lines WHERE line = 3; INSERT INTO shop.order_lines VALUES (7, 9, NULL, 1);",
            "UPDATE shop.order_lines SET quantity = quantity + 5 WHERE order_id < 50;",
        ),
        key=("order_id", "line"),
    ),
    Table(
        "renamed",  # keys that change: a delete of the old one and a create of the new one
        "code text PRIMARY KEY, n int",
        "SELECT 'code-' || n, n FROM generate_series(1, 100) n",
        (
            "UPDATE shop.renamed SET code = 'new-' || n WHERE n % 3 = 0;",
            "UPDATE shop.renamed SET code = 'code-' || (n + 1000), n = n + 1000 WHERE n % 5 = 0;",
            "UPDATE shop.renamed SET code = 'code-3' WHERE code = 'new-3';",
        ),
        key=("code",),
    ),
    Table(
        "deleted",  # most rows go, some come again
        "id int PRIMARY KEY, name text",
        "SELECT n, 'row ' || n FROM generate_series(1, 500) n",
        (
            "DELETE FROM shop.deleted WHERE id % 3 = 0;",
            "DELETE FROM shop.deleted WHERE id % 3 = 1; INSERT INTO shop.deleted VALUES (3, 'again');",
            (
                "DELETE FROM shop.deleted WHERE id = 2; INSERT INTO shop.deleted VALUES (6, 'again'), (9, 'again');"
                " DELETE FROM shop.deleted WHERE id = 9;"
            ),
        ),
    ),
    Table(
        "toast",  # a text that is stored apart, which an update leaves as it is; REPLICA IDENTITY DEFAULT
        "id int PRIMARY KEY, n int, body text, tags text[]",
        "SELECT n, 0, (SELECT string_agg(md5(n || '-' || i), '') FROM generate_series(1, 300) i),"
        " (SELECT array_agg(md5(n || '/' || i)) FROM generate_series(1, 300) i) FROM generate_series(1, 60) n",
        (
            "UPDATE shop.toast SET n = n + 1 WHERE id <= 30;",
            "UPDATE shop.toast SET body = body || '!' WHERE id % 10 = 0; UPDATE shop.toast SET n = 7 WHERE id = 20;",
            "UPDATE shop.toast SET n = n + 1 WHERE id <= 5;",
        ),
    ),
    Table(
        "toast_full",  # the same with REPLICA IDENTITY FULL
        "id int PRIMARY KEY, n int, body text",
        "SELECT n, 0, (SELECT string_agg(md5(n || '-' || i), '') FROM generate_series(1, 300) i)"
        " FROM generate_series(1, 40) n; ALTER TABLE shop.toast_full REPLICA IDENTITY FULL",
        (
            "UPDATE shop.toast_full SET n = n + 1 WHERE id <= 20;",
            "UPDATE shop.toast_full SET body = body || '!' WHERE id % 10 = 0;",
            "DELETE FROM shop.toast_full WHERE id = 3; UPDATE shop.toast_full SET n = n + 1 WHERE id <= 5;",
        ),
    ),
    Table(
        "documents",
        "id int PRIMARY KEY, raw bytea, doc jsonb, plain json",
        "SELECT n, sha256(n::text::bytea), jsonb_build_object('b', n, 'a', ARRAY[1, NULL], 'ü', 'x\"y'),"
        ' \'{"z" : 1, "a": [ ]}\' FROM generate_series(1, 50) n',
        (
            "UPDATE shop.documents SET raw = '\\x00ff', doc = doc || '{\"c\": 1.50}' WHERE id <= 20;",
            "UPDATE shop.documents SET raw = '', doc = 'null', plain = '\"text\"' WHERE id <= 5;",
            "UPDATE shop.documents SET raw = NULL, doc = NULL, plain = NULL WHERE id = 1;",
        ),
    ),
    Table(
        "numbers",
        "id int PRIMARY KEY, fixed numeric(10,2), big numeric(38,0), free numeric, tiny smallint, whole bigint,"
        " yes boolean",
        "SELECT n, n / 7.0, 10::numeric ^ 30 + n, n / 3.0, n, n::bigint << 40, n % 2 = 0 FROM generate_series(1, 60) n",
        (
            "UPDATE shop.numbers SET fixed = -0.01, free = 0 WHERE id <= 20;",
            "UPDATE shop.numbers SET fixed = 99999999.99, free = 1.500 WHERE id <= 10;",
            (
                "UPDATE shop.numbers SET fixed = NULL, big = NULL, free = NULL, tiny = NULL, whole = NULL, yes = NULL"
                " WHERE id = 1; UPDATE shop.numbers SET free = -12345678901234567890.12345678901234567890 WHERE id = 2;"
            ),
        ),
    ),
    Table(
        "floats",
        "id int PRIMARY KEY, single real, double double precision",
        "SELECT n, n / 3.0, n / 7.0 FROM generate_series(1, 20) n",
        (
            "UPDATE shop.floats SET single = 'NaN', double = 'NaN' WHERE id = 1;",
            "UPDATE shop.floats SET single = 'Infinity', double = '-Infinity' WHERE id = 2;",
            (
                "UPDATE shop.floats SET single = 1e-40, double = 1.7976931348623157e308 WHERE id = 3;"
                " UPDATE shop.floats SET single = '-0', double = '-0' WHERE id = 4;"
            ),
        ),
    ),
    Table(
        "lists",
        "id int PRIMARY KEY, numbers int[], texts text[], moneys numeric(10,2)[], flags boolean[]",
        "SELECT n, ARRAY[n, NULL, -n], ARRAY['a,b', 'q\"\\', NULL, ''], ARRAY[1.5, n], ARRAY[true, NULL]"
        " FROM generate_series(1, 30) n",
        (
            "UPDATE shop.lists SET numbers = '{}', texts = '{}' WHERE id <= 10;",
            "UPDATE shop.lists SET texts = texts || 'ü'::text, moneys = moneys || 2.25 WHERE id <= 20;",
            "UPDATE shop.lists SET numbers = NULL, texts = NULL, moneys = NULL, flags = NULL WHERE id = 1;",
        ),
    ),
    Table(
        "moods",  # an enum, which gets another word meanwhile
        "id int PRIMARY KEY, mood shop.mood",
        "SELECT n, 'good' FROM generate_series(1, 30) n",
        (
            "UPDATE shop.moods SET mood = 'bad' WHERE id <= 10;",
            "ALTER TYPE shop.mood ADD VALUE 'so-so';",
            "UPDATE shop.moods SET mood = 'so-so' WHERE id <= 5; UPDATE shop.moods SET mood = NULL WHERE id = 6;",
        ),
    ),
    Table(
        _ODD,
        '"Schlüssel" int PRIMARY KEY, "Größe in cm" text, "1st" int, "a.b" int, "select" text',
        "SELECT n, 'x' || n, n, n, 'y' FROM generate_series(1, 30) n",
        (
            f"""UPDATE {_ODD_QUOTED} SET "Größe in cm" = '''ü"' WHERE "Schlüssel" <= 10;""",
            f"""DELETE FROM {_ODD_QUOTED} WHERE "Schlüssel" = 30;""",
            f"""UPDATE {_ODD_QUOTED} SET "1st" = 0, "a.b" = -1 WHERE "Schlüssel" <= 5;""",
        ),
        key=("Schlüssel",),
    ),
    Table(
        "measured",  # partitioned, published by its root; a row moves to another partition
        "id int, day date, celsius real, PRIMARY KEY (id, day)",
        "SELECT n, date '2026-01-01' + n, n FROM generate_series(1, 90) n",
        (
            "UPDATE shop.measured SET celsius = 0 WHERE id <= 45;",
            "UPDATE shop.measured SET day = '2026-12-24' WHERE id <= 10;",
            "DELETE FROM shop.measured WHERE id % 7 = 0;",
        ),
        key=("id", "day"),
    ),
    Table(
        "nets",
        "id uuid PRIMARY KEY, host inet, net cidr, mac macaddr, span int4range, lasts interval",
        "SELECT md5(n::text)::uuid, ('10.0.0.' || n)::inet, ('10.' || n || '.0.0/16')::cidr, '08:00:2b:01:02:03',"
        " int4range(n, n + 5), make_interval(months => n, days => n, secs => n / 8.0) FROM generate_series(1, 40) n",
        (
            "UPDATE shop.nets SET host = '10.0.0.1/8' WHERE host < '10.0.0.9';",
            "UPDATE shop.nets SET host = 'fe80::1', span = 'empty', lasts = '-3 days 1.5 s' WHERE host > '10.0.0.30';",
            "DELETE FROM shop.nets WHERE host = '10.0.0.20';",
        ),
    ),
    Table(
        "times",
        "id int PRIMARY KEY, at timestamp, at_ms timestamp(3), zoned timestamptz, day date, clock time",
        "SELECT n, timestamp '2026-01-01 00:00:00.123456' + n * interval '1 hour', timestamp '2026-01-01' + n *"
        " interval '1.001 s', timestamptz '2026-06-01 12:00:00.5+02' + n * interval '1 day',"
        " date '2026-01-01' + n, time '00:00:00.000001' + n * interval '1 minute' FROM generate_series(1, 40) n",
        (
            "UPDATE shop.times SET at = '1969-12-31 23:59:59.999999', day = '1582-10-04' WHERE id <= 10;",
            "UPDATE shop.times SET at = '0044-03-15', zoned = '1500-01-01 00:00Z', day = '9999-12-31' WHERE id <= 5;",
            "UPDATE shop.times SET at = NULL, at_ms = NULL, zoned = NULL, day = NULL, clock = NULL WHERE id = 1;",
        ),
    ),
    Table(
        "endless",  # moments that no calendar has
        "id int PRIMARY KEY, at timestamp, zoned timestamptz, day date",
        "SELECT n, 'infinity', '-infinity', '2026-01-01' FROM generate_series(1, 10) n",
        (
            "UPDATE shop.endless SET at = '-infinity', zoned = 'infinity' WHERE id <= 5;",
            "UPDATE shop.endless SET day = 'infinity' WHERE id <= 2;",
            "UPDATE shop.endless SET day = '-infinity' WHERE id = 3;",
        ),
    ),
    Table(
        "prices",
        "id int PRIMARY KEY, price money",
        "SELECT n, n * 1.25::numeric::money FROM generate_series(1, 30) n",
        (
            "UPDATE shop.prices SET price = '-1234567.89' WHERE id <= 10;",
            "UPDATE shop.prices SET price = NULL WHERE id = 1;",
            "DELETE FROM shop.prices WHERE id = 2;",
        ),
    ),
    Table(
        "settings",
        "id int PRIMARY KEY, options hstore",
        "SELECT n, hstore(ARRAY['a', n::text, 'b c', NULL]) FROM generate_series(1, 30) n",
        (
            'UPDATE shop.settings SET options = options || \'"q\\""=>"ü"\' WHERE id <= 10;',
            "UPDATE shop.settings SET options = '' WHERE id <= 5;",
            "UPDATE shop.settings SET options = NULL WHERE id = 1;",
        ),
    ),
    Table(
        "totals",  # PostgreSQL 15 does not publish what it generates
        "id int PRIMARY KEY, net int, gross int GENERATED ALWAYS AS (net * 2) STORED",
        "SELECT n, n FROM generate_series(1, 30) n",
        (
            "UPDATE shop.totals SET net = 100 WHERE id <= 10;",
            "INSERT INTO shop.totals VALUES (99, 1);",
            "DELETE FROM shop.totals WHERE id = 30;",
        ),
    ),
    Table(
        "keyless",  # no key at all
        "id int, name text",
        "SELECT n, 'row ' || n FROM generate_series(1, 30) n; ALTER TABLE shop.keyless REPLICA IDENTITY FULL",
        (
            "UPDATE shop.keyless SET name = 'x' WHERE id <= 10;",
            "DELETE FROM shop.keyless WHERE id = 1;",
            "INSERT INTO shop.keyless VALUES (2, 'twice');",
        ),
    ),
    Table(
        "keyless_named",  # no primary key; message.key.columns names the columns that are one
        "a int NOT NULL, b text NOT NULL, n int",
        (
            "SELECT n % 10, 'b' || n, n FROM generate_series(1, 60) n;"
            " ALTER TABLE shop.keyless_named REPLICA IDENTITY FULL"
        ),
        (
            "UPDATE shop.keyless_named SET n = -1 WHERE a = 1;",
            "DELETE FROM shop.keyless_named WHERE a = 2;",
            "UPDATE shop.keyless_named SET n = 0 WHERE a = 3;",
        ),
        key=("a", "b"),
        message_key="a,b",
    ),
    Table(
        "added",  # a column more, which may be null
        "id int PRIMARY KEY, name text",
        "SELECT n, 'row ' || n FROM generate_series(1, 40) n",
        (
            "UPDATE shop.added SET name = 'before' WHERE id <= 10;",
            "ALTER TABLE shop.added ADD COLUMN note text; UPDATE shop.added SET note = 'new' WHERE id <= 5;",
            "INSERT INTO shop.added VALUES (99, 'late', 'note');",
        ),
    ),
    Table(
        "added_default",  # a column more with a default: the rows that are there get it without a change
        "id int PRIMARY KEY, name text",
        "SELECT n, 'row ' || n FROM generate_series(1, 40) n",
        (
            "UPDATE shop.added_default SET name = 'before' WHERE id <= 10;",
            (
                "ALTER TABLE shop.added_default ADD COLUMN level int NOT NULL DEFAULT 7;"
                " UPDATE shop.added_default SET level = 8 WHERE id <= 5;"
            ),
            "INSERT INTO shop.added_default VALUES (99, 'late');",
        ),
    ),
    Table(
        "widened",  # the key's type grows
        "id int PRIMARY KEY, n int",
        "SELECT n, n FROM generate_series(1, 40) n",
        (
            "UPDATE shop.widened SET n = 0 WHERE id <= 20;",
            "ALTER TABLE shop.widened ALTER COLUMN id TYPE bigint; UPDATE shop.widened SET n = 1 WHERE id <= 10;",
            "UPDATE shop.widened SET n = 2 WHERE id <= 5; DELETE FROM shop.widened WHERE id = 40;",
        ),
    ),
    Table(
        "widened_value",  # the type of a column that is no key grows
        "id int PRIMARY KEY, n int",
        "SELECT n, n FROM generate_series(1, 40) n",
        (
            "UPDATE shop.widened_value SET n = 0 WHERE id <= 20;",
            (
                "ALTER TABLE shop.widened_value ALTER COLUMN n TYPE bigint;"
                " UPDATE shop.widened_value SET n = 1::bigint << 40 WHERE id <= 10;"
            ),
            "UPDATE shop.widened_value SET n = 2 WHERE id <= 5;",
        ),
    ),
    Table(
        "dropped",  # a column less
        "id int PRIMARY KEY, old text, name text",
        "SELECT n, 'old', 'row ' || n FROM generate_series(1, 40) n",
        (
            "UPDATE shop.dropped SET name = 'before' WHERE id <= 10;",
            "ALTER TABLE shop.dropped DROP COLUMN old; UPDATE shop.dropped SET name = 'after' WHERE id <= 5;",
            "INSERT INTO shop.dropped VALUES (99, 'late');",
        ),
    ),
    Table(
        "emptied",  # TRUNCATE
        "id int PRIMARY KEY, name text",
        "SELECT n, 'row ' || n FROM generate_series(1, 40) n",
        (
            "UPDATE shop.emptied SET name = 'x' WHERE id <= 10;",
            "TRUNCATE shop.emptied;",
            "INSERT INTO shop.emptied VALUES (1, 'again');",
        ),
    ),
    Table(
        "bulk",  # one transaction of 150,000 changes, more than Debezium's and Connect's queues hold
        "id int PRIMARY KEY, batch int, name text",
        "SELECT n, 0, 'row ' || n FROM generate_series(1, 100) n",
        (
            "UPDATE shop.bulk SET batch = 1;",
            (
                "BEGIN; INSERT INTO shop.bulk SELECT n, 2, 'row ' || n FROM generate_series(101, 50100) n;"
                " UPDATE shop.bulk SET batch = 3 WHERE id > 100; DELETE FROM shop.bulk WHERE id > 25100;"
                " UPDATE shop.bulk SET batch = 4 WHERE id > 100; COMMIT;"
            ),
            "UPDATE shop.bulk SET batch = 5 WHERE id <= 50;",
        ),
    ),
)

BEFORE: Final = f"""
CREATE EXTENSION hstore;
CREATE SCHEMA {SCHEMA};
CREATE TYPE {SCHEMA}.mood AS ENUM ('good', 'bad');
CREATE TABLE {SCHEMA}.fence (id int PRIMARY KEY, n bigint);
INSERT INTO {SCHEMA}.fence VALUES (1, 0);
"""
"""What is made before the tables; `fence` is changed until all before it has been read (`story.py`)."""


def created(table: Table) -> str:
    """Returns the statements that make a table with its first rows."""
    if table.name != "measured":
        return f"CREATE TABLE {table.quoted} ({table.create}); INSERT INTO {table.quoted} {table.rows};"
    parts = (
        f"CREATE TABLE {SCHEMA}.measured_{month} PARTITION OF {table.quoted}"
        f" FOR VALUES FROM ('2026-{first:02}-01') TO ('{last}-01');"
        for month, first, last in (("winter", 1, "2026-03"), ("spring", 3, "2026-06"), ("rest", 6, "2027-01"))
    )
    return (
        f"CREATE TABLE {table.quoted} ({table.create}) PARTITION BY RANGE (day); {''.join(parts)}"
        f" INSERT INTO {table.quoted} {table.rows};"
    )
