-- Every landed row of an airport. The files have NA for what is not known: a few airports have no known time zone.
SELECT
  struct(faa, name, lat, lon, alt, tz, dst, tzone) AS landed,
  faa, nullif(name, 'NA') AS name, nullif(tzone, 'NA') AS zone,
  _source_file, _source_row, _batch_id, _landing
FROM bronze.airports
