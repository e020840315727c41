"""Landed files of every format, each made into one Parquet file with just its table's columns."""
