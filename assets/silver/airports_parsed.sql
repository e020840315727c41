-- Every landed row of an airport, and what its expectations are validated by (AIRPORTS_EXPECTATIONS).
-- In: {airports}. The files have NA for what is not known: a few airports have no known time zone.
SELECT
  faa, nullif(name, 'NA') AS name, nullif(tzone, 'NA') AS zone,
  _source_file, _source_row, _landing, _batch_id,
  to_json(struct(faa, name, lat, lon, alt, tz, dst, tzone)) AS landed
FROM {airports}
