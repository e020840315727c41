"""The kinds of tables: components that a table's `defs.yaml` names."""

from components.landed_files_component import LandedFiles
from components.sql_table_component import SqlTable

__all__ = ["LandedFiles", "SqlTable"]
