SELECT faa, name, CAST(lat AS DOUBLE) AS lat, CAST(lon AS DOUBLE) AS lon, alt, nullif(tzone, 'NA') AS tzone
FROM bronze.airports
WHERE _source_file = (SELECT max_by(_source_file, _loaded_at) FROM bronze.airports)
