"""A Unity Catalog server for one machine: the published REST API over SQLite, with real arbitration of commits."""
