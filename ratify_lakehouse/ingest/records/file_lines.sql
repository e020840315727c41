-- The lines of files, each once, by the file's path below `root` and the line's number, with the exact bytes of the line.
-- In: {files}, each file's content as `value`, with its path and when it was modified; {known}, the topics that are not read.
WITH named AS (
  -- Spark gives the path as a URL, in which a plus is not a space.
  SELECT
    value, modified,
    concat($topic, substring(
      regexp_replace(url_decode(replace(path, '+', '%2B')), $scheme, ''), length($root) + 2)) AS topic
  FROM {files}
),
split_up AS (
  -- Decoded with one character for each byte, so that bytes that are no UTF-8 stay unchanged.
  SELECT topic, modified, split(decode(CAST(value AS BINARY), 'ISO-8859-1'), '\r?\n') AS parts
  FROM named LEFT ANTI JOIN {known} AS known USING (topic)
),
lines AS (
  -- No line follows the last line feed.
  SELECT topic, modified, posexplode(IF(element_at(parts, -1) = '', slice(parts, 1, size(parts) - 1), parts)) AS (number, line)
  FROM split_up
)
SELECT
  topic, CAST(number AS BIGINT) AS offset, modified, encode(line, 'ISO-8859-1') AS value,
  try_validate_utf8(CAST(encode(line, 'ISO-8859-1') AS STRING)) AS text
FROM lines
