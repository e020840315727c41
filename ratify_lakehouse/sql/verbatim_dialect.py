"""A dialect of sqlglot's that writes the functions of a query as their author did.

sqlglot knows many functions, and writes a call as one of another function that does about the same, or a text in it, such as
a path, as it has understood it. The values may be others. Here it knows only which functions are aggregates.
"""

from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

from ratify_lakehouse.sql.table_query import Dialect

_SPARK = """
    any any_value approx_count_distinct approx_percentile approx_top_k approx_top_k_accumulate approx_top_k_combine
    array_agg avg bit_and bit_or bit_xor bitmap_and_agg bitmap_construct_agg bitmap_or_agg bool_and bool_or collect_list
    collect_set corr count count_if count_min_sketch covar_pop covar_samp every first first_value grouping grouping_id
    histogram_numeric hll_sketch_agg hll_union_agg kll_merge_agg_bigint kll_merge_agg_double kll_merge_agg_float
    kll_sketch_agg_bigint kll_sketch_agg_double kll_sketch_agg_float kurtosis last last_value listagg max max_by mean
    measure median min min_by mode percentile percentile_approx percentile_cont percentile_disc regr_avgx regr_avgy
    regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy schema_of_variant_agg skewness some std
    stddev stddev_pop stddev_samp string_agg sum theta_intersection_agg theta_sketch_agg theta_union_agg try_avg try_sum
    tuple_intersection_agg_double tuple_intersection_agg_integer tuple_sketch_agg_double tuple_sketch_agg_integer
    tuple_union_agg_double tuple_union_agg_integer var_pop var_samp variance vector_avg vector_sum
"""
_WINDOW = "cume_dist dense_rank lag lead nth_value ntile percent_rank rank row_number"
_DATABRICKS = "product schema_of_json_agg st_envelope_agg st_union_agg"
AGGREGATES = frozenset(f"{_SPARK} {_WINDOW} {_DATABRICKS}".split())
"""Those of Spark and of Databricks, and the functions that need a window."""

_DUCKDB = """
    approx_quantile arbitrary arg_max arg_max_null arg_max_nulls_last arg_min arg_min_null arg_min_nulls_last argmax argmin
    bitstring_agg count_star countif entropy favg fill fsum geomean group_concat histogram histogram_exact
    json_group_array json_group_object json_group_structure kahan_sum kurtosis_pop list mad quantile quantile_cont
    quantile_disc rank_dense reservoir_quantile sem sum_no_overflow sumkahan wavg weighted_avg
"""

# Their first argument is a word if they have three.
_WITH_UNIT = ("DATEADD", "DATE_ADD", "DATEDIFF", "DATE_DIFF", "TIMEDIFF", "TIMESTAMPADD", "TIMESTAMPDIFF")
# Calls that have more syntax than arguments, and hints.
_SYNTAX = """
    CAST EXTRACT OVERLAY SUBSTRING TRANSFORM TRIM TRY_CAST
    BROADCAST BROADCASTJOIN MAPJOIN MERGE MERGEJOIN SHUFFLEMERGE SHUFFLE_HASH SHUFFLE_REPLICATE_NL
"""
_SPELLINGS = {
    "!": "NOT",
    "!=": "<>",
    "==": "=",
    "<=>": "IS NOT DISTINCT FROM",
    "?::": "TRY_CAST",
    "MINUS": "EXCEPT",
    "REGEXP": "RLIKE",
    "BYTE": "TINYINT",
    "DEC": "DECIMAL",
    "INTEGER": "INT",
    "LONG": "BIGINT",
    "NUMERIC": "DECIMAL",
    "REAL": "FLOAT",
    "SHORT": "SMALLINT",
    "TEXT": "VARCHAR",
    # Suffixes of numbers.
    "D": "DOUBLE",
    "F": "FLOAT",
    "L": "BIGINT",
    "S": "SMALLINT",
    "Y": "TINYINT",
}
# Without them a text means the same, or they are where the structure has them anyway.
_LEFT_OUT = frozenset({"(", ")", ",", ";", "::", "AS", "ASC", "CAST", "INNER", "OUTER"})
# What an author may leave out of a join, or of a window's frame.
_MAY_BE_ADDED = frozenset({"AND", "BETWEEN", "CROSS", "CURRENT", "JOIN", "ON", "ROW", "TRUE"})
# What says of an order what holds without it.
_MAY_BE_DROPPED = frozenset({"FIRST", "LAST", "NULLS"})


@cache
def verbatim(dialect: Dialect) -> Any:
    """The variant of a dialect that writes functions as they were written."""
    from sqlglot import exp
    from sqlglot.dialects.dialect import Dialect as Base

    base: Any = type(Base.get_or_raise(dialect))
    known: list[Any] = [each for each in exp.ALL_FUNCTIONS if issubclass(each, exp.AggFunc)]
    of_dialect = {*AGGREGATES, *(_DUCKDB.split() if dialect == "duckdb" else ())}
    aggregates = {*map(str.upper, of_dialect), *(name for each in known for name in each.sql_names())}
    functions: dict[str, Callable[[list[Any]], Any]] = {
        **{name: _aggregate(name) for name in aggregates},
        **{name: _with_unit(name) for name in _WITH_UNIT},
        # Of one that is not known, an index would become its only element.
        "ARRAY": _array,
    }
    syntax, bare = base.parser_class.FUNCTION_PARSERS, base.parser_class.NO_PAREN_FUNCTION_PARSERS
    parsing = {
        "FUNCTIONS": functions,
        "FUNCTION_PARSERS": {name: parse for name, parse in syntax.items() if name in _SYNTAX.split()},
        "NO_PAREN_FUNCTION_PARSERS": {name: parse for name, parse in bare.items() if name != "ANY"},
    }
    operators = {exp.BitwiseLeftShift: "<<", exp.BitwiseRightShift: ">>", exp.RegexpLike: "RLIKE"}
    transforms = base.generator_class.TRANSFORMS | {node: _operator(text) for node, text in operators.items()}
    parser = type("Parser", (base.parser_class,), parsing)
    generator = type("Generator", (base.generator_class,), {"TRANSFORMS": transforms})
    return type(f"Verbatim{base.__name__}", (base,), {"Parser": parser, "Generator": generator})


def _aggregate(name: str) -> Callable[[list[Any]], Any]:
    from sqlglot import exp

    return lambda args: exp.AnonymousAggFunc(this=name, expressions=args)


def _with_unit(name: str) -> Callable[[list[Any]], Any]:
    from sqlglot import exp

    def built(args: list[Any]) -> Any:
        unit = [exp.var(args[0].name)] if len(args) == 3 else args[:1]
        return exp.Anonymous(this=name, expressions=[*unit, *args[1:]])

    return built


def _array(args: list[Any]) -> Any:
    from sqlglot import exp

    return exp.Array(expressions=args)


def _operator(text: str) -> Callable[[Any, Any], str]:
    return lambda generator, node: generator.binary(node, text)


def written_otherwise(text: str, root: Any, dialect: Dialect) -> str | None:
    """Return a word of a text which sqlglot would write in another way, though the values may then be others, if it has one.

    Args:
        text: A query.
        root: What it was parsed as, by the variant of its dialect.
        dialect: Its dialect.
    """
    author, again = (_words(each, dialect) for each in (text, root.sql(dialect=verbatim(dialect), comments=False)))
    differing = (author - again).keys() - _MAY_BE_DROPPED | (again - author).keys() - _MAY_BE_ADDED
    return min(differing, default=None)


def _words(text: str, dialect: Dialect) -> Counter[str]:
    """The words, texts and numbers of a query, in one spelling."""
    found = Counter[str]()
    for token in verbatim(dialect)().tokenize(text):
        kind = token.token_type.name
        if kind in ("STRING", "RAW_STRING"):
            found[_content(text[token.start : token.end + 1], kind == "RAW_STRING")] += 1
            continue
        word = " ".join(token.text.upper().split())
        found.update(each for each in _SPELLINGS.get(word, word).split(" ") if each not in _LEFT_OUT)
    return found


def _content(literal: str, raw: bool) -> str:
    r"""What is between the quotes of a literal, as one in single quotes would have it, but for a quote itself."""
    content = literal.lstrip("rR")[1:-1]
    if raw:
        return content.replace("\\", "\\\\")
    parts, at = list[str](), 0
    while at < len(content):
        step = 2 if content[at] == "\\" else 1
        part = content[at : at + step]
        parts.append(part[1] if part in ("\\'", '\\"') else part)
        at += step
    return "".join(parts)
