"""The catalog's durable state: one SQLite file, and the transactions over it."""
