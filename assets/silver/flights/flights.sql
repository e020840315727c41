-- Every bronze row, typed, with UTC times and its key. Text that is no number or date becomes NULL here and fails an
-- expectation.
WITH given AS (
  -- The files have NA for a value that was not recorded.
  SELECT
    r.*, nullif(tailnum, 'NA') AS tail_number, nullif(dep_time, 'NA') AS given_dep_time,
    nullif(arr_time, 'NA') AS given_arr_time, nullif(dep_delay, 'NA') AS given_dep_delay,
    nullif(arr_delay, 'NA') AS given_arr_delay, nullif(air_time, 'NA') AS given_air_time
  FROM bronze.flights_raw AS r
),
typed AS (
  SELECT
    try_cast(concat_ws('-', year, month, day) AS DATE) AS flight_date,
    carrier,
    try_cast(flight AS INT) AS flight_number,
    tail_number,
    origin,
    dest,
    try_cast(sched_dep_time AS INT) AS sched_dep_time,
    try_cast(sched_arr_time AS INT) AS sched_arr_time,
    try_cast(given_dep_time AS INT) AS dep_time,
    try_cast(given_arr_time AS INT) AS arr_time,
    try_cast(given_dep_delay AS INT) AS departure_delay_min,
    try_cast(given_arr_delay AS INT) AS arrival_delay_min,
    try_cast(given_air_time AS INT) AS air_time_min,
    try_cast(distance AS INT) AS distance_miles,
    given_dep_time IS NOT NULL AND try_cast(given_dep_time AS INT) IS NULL
      OR given_arr_time IS NOT NULL AND try_cast(given_arr_time AS INT) IS NULL
      OR given_dep_delay IS NOT NULL AND try_cast(given_dep_delay AS INT) IS NULL
      OR given_arr_delay IS NOT NULL AND try_cast(given_arr_delay AS INT) IS NULL
      OR given_air_time IS NOT NULL AND try_cast(given_air_time AS INT) IS NULL AS has_text_for_number,
    _source_file, _source_row, _landing, _batch_id,
    struct(year, month, day, dep_time, sched_dep_time, dep_delay, arr_time, sched_arr_time, arr_delay, carrier, flight,
      tailnum, origin, dest, air_time, distance) AS landed
  FROM given
),
local AS (
  SELECT
    t.*, z.zone AS dest_zone,
    try_make_timestamp(year(flight_date), month(flight_date), day(flight_date),
      sched_dep_time DIV 100, sched_dep_time % 100, 0) AS departure_local,
    try_make_timestamp(year(flight_date), month(flight_date), day(flight_date),
      sched_arr_time DIV 100, sched_arr_time % 100, 0) AS arrival_local
  FROM typed AS t LEFT JOIN silver.airports AS z ON t.dest = z.faa
),
same_day AS (
  -- Files have local times: of New York for the departure, of the destination for the arrival. Unlike to_utc_timestamp,
  -- try_to_timestamp gives NULL for a zone that does not exist, where one such row would stop all flights.
  SELECT
    *,
    to_utc_timestamp(departure_local, 'America/New_York') AS scheduled_departure_utc,
    try_to_timestamp(date_format(arrival_local, 'yyyy-MM-dd HH:mm ') || dest_zone, 'yyyy-MM-dd HH:mm VV') AS same_day_utc
  FROM local
),
utc AS (
  SELECT
    *,
    CASE WHEN same_day_utc > scheduled_departure_utc THEN same_day_utc
      ELSE try_to_timestamp(
        date_format(arrival_local + INTERVAL 1 DAY, 'yyyy-MM-dd HH:mm ') || dest_zone, 'yyyy-MM-dd HH:mm VV')
      END AS scheduled_arrival_utc
  FROM same_day
)
SELECT
  landed,
  concat_ws('-', carrier, flight_number, origin, date_format(scheduled_departure_utc, "yyyyMMdd'T'HHmm'Z'")) AS flight_id,
  flight_date, carrier, flight_number, tail_number, origin, dest,
  scheduled_departure_utc,
  scheduled_departure_utc + make_dt_interval(0, 0, departure_delay_min) AS departure_utc,
  scheduled_arrival_utc,
  scheduled_arrival_utc + make_dt_interval(0, 0, arrival_delay_min) AS arrival_utc,
  departure_delay_min, arrival_delay_min, air_time_min, distance_miles,
  dep_time IS NULL AS cancelled,
  dep_time IS NOT NULL AND arrival_delay_min IS NULL AS diverted,
  _source_file, _source_row, _batch_id, _landing,
  departure_local, arrival_local, dep_time, arr_time, has_text_for_number
FROM utc
