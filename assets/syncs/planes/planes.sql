SELECT tailnum, nullif(year, 'NA') AS year, type, manufacturer, model, nullif(seats, 'NA') AS seats, engine,
  _loaded_at AS listed_at
FROM bronze.planes
