"""The queries for affected keys have the functions that the author wrote, and no aggregate is taken for one of a row."""

import re

import pytest

from ratify_lakehouse.errors import InvalidDeclaration
from ratify_lakehouse.sql.affected_keys import keys_queries
from ratify_lakehouse.sql.query_parts import NotDerivable
from ratify_lakehouse.sql.row_wise_inputs import row_wise_inputs
from ratify_lakehouse.sql.table_query import TableQuery

COLUMNS = ("n", "m", "s", "t1", "t2", "arr", "mp", "st", "day", "hour", "key")

VERBATIM = r"""
    datediff(t2, t1) ; date_diff(t2, t1) + 1 ; datediff(DAY, t1, t2) ; timestampdiff(HOUR, t1, t2) ;
    timestampadd(HOUR, 3, t1) ; dateadd(DAY, 3, t1) ; dateadd(t1, 3) ; date_add(t1, 3) ; date_sub(t1, n - 1) ;
    months_between(t1, t2, false) ; trunc(n, 2) ; to_date(s, 'yyyy-DDD') ; try_to_timestamp(s) ; to_timestamp(s) ;
    to_timestamp(s, 'yyyy-MM-dd HH:mm:ss.SSS') ; last_day(t1) ; date_trunc('week', t1) ; trunc(t1, 'MM') ;
    extract(dow FROM t1) ; extract(YEAROFWEEK FROM t1) ; date_part('week', t1) ; date_format(t1, 'E d MMM yy') ;
    date_format(t1, 'y-M-d') ; date_format(t1, 'yyyyy') ; date_format(t1, '%Y') ; year(t1) ; from_unixtime(n, 'H') ;
    unix_timestamp(s) ; to_unix_timestamp(t1) ; unix_date(t1) ; from_utc_timestamp(t1, 'Europe/Berlin') ; date(t1) ;
    timestamp(s) ; int(s) ; string(n) ; bigint(s) ; double(s) ; boolean(n) ; make_timestamp(n, n, n, n, n, n) ;
    mod(n + 1, m) ; pmod(n, m) ; try_divide(n, m) ; n DIV m ; n % m ; n << 2 ; n >> 2 ; shiftrightunsigned(n, 2) ;
    n ^ m ; n & m ; log(n) ; log(2, n) ; ln(n) ; log2(n) ; log10(n) ; floor(log10(n)) ; pow(n, 2) ; ceil(n, 1) ;
    ceiling(n) ; signum(n) ; ifnull(n, m) ; nvl(n, 1) + 1 ; nvl2(n, m, n) ; iff(n > 1, 'a', 'b') ; if(n > 1, 'a', 'b') ;
    decode(n, 1, 'a', NULL, 'b', 'c') ; CASE n WHEN 1 THEN 'a' ELSE 'b' END ; s RLIKE '^a' ; regexp_like(s, 'a') ;
    s LIKE 'a!%' ESCAPE '!' ; s ILIKE ANY ('a', 'b') ; regexp_extract(s, '(a)(b)') ; regexp_extract(s, '(a)(b)', 1) ;
    regexp_replace(s, '(a)', '$1') ; split(s, '[.]')[1] ; element_at(arr, 1) ; try_element_at(mp, 'a') ; get(arr, 0) ;
    arr[n] ; mp['A b'] ; array(n, m)[0] ; array_size(arr) ; slice(arr, 1, 2) ; array_sort(arr) ; sort_array(arr, false) ;
    sequence(1, n) ; transform(arr, x -> x + n) ; reduce(arr, 0, (acc, x) -> acc + x) ;
    aggregate(arr, 0, (acc, x) -> acc + x) ; filter(arr, (x, i) -> x > i) ; exists(arr, x -> x > n) ;
    zip_with(arr, arr, (x, y) -> x + y) ; map('a', 1) ; map_from_arrays(arr, arr) ; str_to_map(s) ; struct(n, s) ;
    struct(n AS x, s AS y).x ; named_struct('a', n, 'b', s) ; substring(s, 2, 3) ; substr(s, 0, 2) ; left(s, n - 1) ;
    instr(s, 'a') ; locate('a', s, 2) ; position('a', s) ; position('a' IN s) ; charindex('a', s) ; char_length(s) ;
    len(s) ; ucase(s) ; trim(s) ; trim(BOTH 'x' FROM s) ; ltrim('x', s) ; btrim(s, 'x') ; lpad(s, 5) ; replace(s, 'a') ;
    overlay(s PLACING 'x' FROM 2) ; concat(s, n) ; s || n ; concat_ws('|', s, n) ; sha1(s) ; hash(n, s) ; char(n) ;
    chr(n) ; to_char(n, '999') ; get_json_object(s, '$.order-id') ; get_json_object(s, '$.a:b') ;
    get_json_object(s, '$.*') ; get_json_object(s, '$.a[*].b') ; get_json_object(s, '$.$id') ;
    get_json_object(s, '$.@type') ; from_json(s, 'a INT') ; to_json(st) ; s:a.b ; s:OrderId[0].Sub ; s:items[*].id ;
    collate(s, 'UTF8_LCASE') ; width_bucket(n, 1, 2, 3) ; startswith(s, 'a') ; typeof(n) ; equal_null(n, m) ;
    window(t1, '10 minutes').start ; INTERVAL '1-2' YEAR TO MONTH ; t1 - INTERVAL '3' DAYS ; -n ; n - (m - 1) ;
    try_cast(s AS DECIMAL(10, 2)) ; CAST(s AS TIMESTAMP_NTZ) ; X'1F' ; 1e3 ; 'a\\d\'b' ; NOT n IS TRUE ; n IN (1, 2) ;
    (n, m) IN ((1, 2)) ; main.tools.Normal(s) ; mp.OrderId ; st.Inner.Sub ; zeroifnull(n) ; bit_count(n) ; e() ;
    explode(arr) ; explode_outer(arr) ; ai_mask(s)
"""
EXPRESSIONS = [each.strip() for each in VERBATIM.split(" ;")]


def derived(text: str) -> str:
    query = TableQuery.parsed(text, "databricks", "a query")
    return " ".join(each.text for each in keys_queries(query, ["key"], dict.fromkeys(query.inputs, COLUMNS)))


def plain(text: str) -> str:
    return re.sub(r"[\s`]|\ba`?\.`?(?=\w)", "", text).lower()


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_is_written_as_the_author_did(expression: str) -> None:
    """Another function, or another text in it, may give other values: keys would be missing."""
    assert f"select{plain(expression)}askey" in plain(derived(f"SELECT {expression} AS key FROM bronze.a"))


@pytest.mark.parametrize(
    ("written", "again"),
    [
        ("n != 1 AND n == m AND !(n = m)", "`n` <> 1 AND `a`.`n` = `a`.`m` AND NOT (`a`.`n` = `a`.`m`)"),
        ("n <=> m AND n NOT IN (1, 2)", "`n` IS NOT DISTINCT FROM `a`.`m` AND NOT `a`.`n` IN (1, 2)"),
        ("n::int = 1L", "CAST(`a`.`n` AS INT) = CAST(1 AS BIGINT)"),
        ("t1 > DATE '2024-01-01' - INTERVAL 1 DAY", "`t1` > CAST('2024-01-01' AS DATE) - INTERVAL '1' DAY"),
        (r"""s REGEXP r'\d+' OR s = "it's" """, r"""`s` RLIKE '\\d+' OR `a`.`s` = 'it\'s'"""),
    ],
)
def test_what_is_written_in_another_way_means_the_same(written: str, again: str) -> None:
    assert again in derived(f"SELECT n AS key FROM bronze.a WHERE {written}")


@pytest.mark.parametrize("key", ["mp.OrderId", "mp.orderid"])
def test_the_key_of_a_map_keeps_its_case(key: str) -> None:
    assert f"`{key.partition('.')[2]}`" in derived(f"SELECT n AS key FROM bronze.a WHERE {key} = 1")


@pytest.mark.parametrize(
    ("expression", "written"),
    [
        ("to_json(struct(Day, n))", "STRUCT(`a`.`day` AS `Day`, `a`.`n`)"),
        ("to_json(struct(S AS Text, St.Inner))", "STRUCT(`a`.`s` AS `Text`, `a`.`st`.`Inner` AS `Inner`)"),
        ("to_json(CAST(st AS STRUCT<Id: INT>))", "AS STRUCT<`Id`: INT>"),
        ("to_json(transform(arr, X -> struct(X)))", "`x` -> STRUCT(`x` AS `X`)"),
        ("n + 1 AS Ref, to_json(struct(Ref))", "STRUCT(`a`.`n` + 1 AS `Ref`)"),
    ],
)
def test_a_name_that_is_part_of_a_value_is_as_it_was_written(expression: str, written: str) -> None:
    """JSON and hashes have the names of fields: keys would be missing."""
    assert written in derived(f"SELECT {expression} AS key FROM bronze.a")


@pytest.mark.parametrize(
    "query",
    [
        "WITH src AS (SELECT n, m, s FROM bronze.a) SELECT md5(concat_ws('|', *)) AS key, * FROM src",
        "SELECT md5(to_json(struct(*))) AS key, * FROM (SELECT n, m FROM bronze.a) AS src",
        "SELECT n AS key, row_number() OVER (PARTITION BY hash(*) ORDER BY m) AS x FROM (SELECT n, m FROM bronze.a) AS src",
        "SELECT to_json(arrays_zip(arr, st)) AS key FROM bronze.a",
        "SELECT xxhash64(n) AS key FROM bronze.a JOIN bronze.b USING (n)",
        "SELECT a.n AS key FROM bronze.a NATURAL JOIN bronze.b",
    ],
)
def test_columns_that_are_not_named_one_by_one_are_refused(query: str) -> None:
    """In the query for the keys they would be others, or have other types."""
    with pytest.raises(NotDerivable, match=r"for changed rows|USING JOIN|NATURAL JOIN"):
        derived(query)


def test_a_condition_on_all_columns_leaves_no_row_out() -> None:
    found = derived("SELECT n AS key FROM (SELECT n, m FROM bronze.a) AS src WHERE coalesce(*) IS NOT NULL")
    assert "WHERE" not in found


@pytest.mark.parametrize(
    "expression",
    [
        *("CAST(s AS CHAR(3))", "substring(s FROM 2 FOR 3)", "1.5BD", "trim(LEADING FROM s)", "s:`a b`.c", "'it' 's'"),
        *(r"s RLIKE '\d+'", r"s = 'caf\u00e9'", "t1 + INTERVAL 1 DAY 2 HOURS"),
    ],
)
def test_what_would_be_written_in_an_unknown_way_is_refused(expression: str) -> None:
    with pytest.raises(NotDerivable, match="in another way"):
        derived(f"SELECT {expression} AS key FROM bronze.a")


# Those of Spark 4.2, by the group that its registry has them in, and those that it has in others.
AGGREGATES = """
    any any_value approx_count_distinct approx_percentile approx_top_k approx_top_k_accumulate approx_top_k_combine
    array_agg avg bit_and bit_or bit_xor bitmap_and_agg bitmap_construct_agg bitmap_or_agg bool_and bool_or collect_list
    collect_set corr count count_if count_min_sketch covar_pop covar_samp every first first_value grouping grouping_id
    histogram_numeric hll_sketch_agg hll_union_agg kll_merge_agg_bigint kll_merge_agg_double kll_merge_agg_float
    kll_sketch_agg_bigint kll_sketch_agg_double kll_sketch_agg_float kurtosis last last_value listagg max max_by mean
    measure median min min_by mode percentile percentile_approx percentile_cont percentile_disc regr_avgx regr_avgy
    regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy schema_of_variant_agg skewness some std
    stddev stddev_pop stddev_samp string_agg sum theta_intersection_agg theta_sketch_agg theta_union_agg try_avg try_sum
    tuple_intersection_agg_double tuple_intersection_agg_integer tuple_sketch_agg_double tuple_sketch_agg_integer
    tuple_union_agg_double tuple_union_agg_integer var_pop var_samp variance vector_avg vector_sum product
    schema_of_json_agg
"""


def is_refused(text: str) -> bool:
    """Also where sqlglot knows that a function has another number of arguments."""
    try:
        derived(text)
    except (NotDerivable, InvalidDeclaration):
        return True
    return False


@pytest.mark.parametrize("name", AGGREGATES.split())
def test_an_aggregate_is_known_as_one(name: str) -> None:
    """It would be computed of the changed rows alone."""
    for call in (f"{name}(n)", f"{name}(n, m)"):
        assert is_refused(f"SELECT {call} AS key FROM bronze.a GROUP BY ALL")
        assert is_refused(f"SELECT a.n AS key FROM bronze.a AS a JOIN (SELECT {call} AS x FROM bronze.a) AS t ON a.n > t.x")
    assert reads_no_row_alone(f"SELECT {name}(n) AS key FROM bronze.a") or reads_no_row_alone(
        f"SELECT {name}(n, m) AS key FROM bronze.a"
    )


def reads_no_row_alone(text: str) -> bool:
    try:
        return row_wise_inputs(TableQuery.parsed(text, "databricks", "a query")) == []
    except InvalidDeclaration:
        return False


@pytest.mark.parametrize(
    "call",
    [
        *(
            "sum(DISTINCT n)",
            "SUM(n) FILTER (WHERE m > 1)",
            "`sum`(n)",
            "system.builtin.sum(n)",
            "1 + coalesce(any(n > 1), 0)",
        ),
        *("count(*)", "listagg(s, ',') WITHIN GROUP (ORDER BY s)", "first(n) IGNORE NULLS", "system.builtin.vector_avg(n)"),
        *("regr_avgx(DISTINCT n, m)", "mode() WITHIN GROUP (ORDER BY n)", "transform(collect_list(n), x -> x + 1)[0]"),
    ],
)
@pytest.mark.parametrize(
    "query",
    [
        *("SELECT {} AS key FROM bronze.a", "SELECT {} AS key FROM bronze.a GROUP BY s"),
        "SELECT s AS key FROM (SELECT s, {} AS x FROM bronze.a GROUP BY s) LEFT JOIN bronze.b AS b ON x = b.n",
    ],
)
def test_however_an_aggregate_is_called_and_used_it_is_known_as_one(call: str, query: str) -> None:
    assert is_refused(query.format(call))
    assert reads_no_row_alone(f"SELECT {call} AS key FROM bronze.a")


@pytest.mark.parametrize(
    "function",
    [
        *("cume_dist()", "dense_rank()", "lag(n, 2)", "lead(n)", "nth_value(n, 2)", "ntile(4)", "percent_rank()", "rank()"),
        *("row_number()", "sum(n)", "max_by(n, m)", "vector_avg(n)", "histogram_numeric(n, 2)"),
    ],
)
def test_of_a_window_function_no_value_is_known(function: str) -> None:
    call = f"{function} OVER (PARTITION BY s ORDER BY t1 ROWS 2 PRECEDING)"
    assert is_refused(f"SELECT {call} AS key FROM bronze.a")
    changed = derived(f"SELECT n AS key, {call} AS x FROM bronze.a")
    assert function.partition("(")[0] not in changed.lower()
    assert "ratify_partition_0" in changed


@pytest.mark.parametrize(
    "generator", ["posexplode(arr) AS (p, key)", "inline(arr) AS (key, x)", "stack(2, n, m) AS (key, x)"]
)
def test_a_generator_of_several_columns_is_refused(generator: str) -> None:
    with pytest.raises(NotDerivable, match="0 columns key"):
        derived(f"SELECT {generator} FROM bronze.a")
