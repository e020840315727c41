SELECT tailnum, year, type, manufacturer, model, seats, engine, _loaded_at AS listed_at
FROM bronze.planes
