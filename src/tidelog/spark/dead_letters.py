"""Records that do not decode, taken out of the flow and made into rows for a dead-letter topic.

    records = spark.readStream.format("tidelog").option("includeHeaders", "true")...load()
    good, bad = split(records, json_value("id bigint, name string"))

`good` has the columns of `records` and `parsed`; `bad` is written with `format("tidelog")`, without
the option `topic`, as each row names its own. All of it is Spark's own expressions, and no plan is
looked at on the way: it works in batches, streams and declarative pipelines alike.
"""

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from tidelog.spark import dead_letter_format as names

_REASON = "__reason"
_NOT_JSON = "__not_json"
_COUNTED_MAX = (1 << 31) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """How a record is decoded."""

    content: Column
    reason: Column
    """Why a record cannot be decoded, as text; null if it can."""


def json_value(schema: str, column: str = "value") -> Parsed:
    """JSON objects with the fields of `schema`, as Spark's DDL writes it. Fields that are missing
    are null, others are ignored; one of another type makes the record a dead letter."""
    text = sql.col(column).cast("string")
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _NOT_JSON}
    # Spark reads up to the end of the first object, whatever follows: as a part of another one it
    # must be all there is, and what comes behind it is seen.
    framed = sql.concat(sql.lit('{"one":'), text, sql.lit(',"end":0}'))
    read = sql.from_json(framed, f"one struct<{schema}>, end int, {_NOT_JSON} string", options)
    is_whole = read["one"].isNotNull() & read["end"].isNotNull() & read[_NOT_JSON].isNull()
    is_json = sql.coalesce(is_whole & _is_single(text), sql.lit(False))
    reason = (
        sql.when(sql.col(column).isNull(), f"{column} is null")
        .when(~sql.is_valid_utf8(text), f"{column} is not UTF-8")
        .when(~is_json, f"{column} is not JSON of {schema}")
    )
    return Parsed(content=read["one"], reason=reason)


def _is_single(text: Column) -> Column:
    """Of what can be a member of an object: that it is one member and not several, as no text can
    be several members of an object and an entry of a list."""
    listed = sql.concat(sql.lit("["), text, sql.lit("]"))
    # Counting is cheaper, and does not know NaN.
    entries = sql.coalesce(
        sql.json_array_length(listed), sql.size(sql.from_json(listed, "array<string>"))
    )
    return entries == 1


def expression(content: Column, reason: str) -> Parsed:
    """Any expression that gives null for what it cannot decode, such as those of Spark whose
    names begin with `try_`."""
    return Parsed(content=content, reason=sql.when(content.isNull(), reason))


def split(
    records: DataFrame, parsed: Parsed, *, stage: str = "parse", has_headers: bool = True
) -> tuple[DataFrame, DataFrame]:
    """The records that decode, with a column `parsed`; and dead letters, for the sink. `records`
    are as the source gives them. Those that were read without `includeHeaders` have no headers
    that a dead letter could keep: then say `has_headers=False`."""
    # `select`, where `withColumn` and `drop` would read better: those have a Connect server look at
    # the plan at once, and a declarative pipeline then does not see which tables a flow waits for.
    good = records.where(parsed.reason.isNull())
    bad = records.select("*", parsed.reason.alias(_REASON)).where(sql.col(_REASON).isNotNull())
    return (
        good.select("*", parsed.content.alias("parsed")),
        bad.select(
            "key",
            "value",
            sql.concat("topic", sql.lit(names.TOPIC_SUFFIX)).alias("topic"),
            _headers(stage, has_headers).alias("headers"),
        ),
    )


def _headers(stage: str, has_headers: bool) -> Column:
    added = {
        names.TOPIC: sql.col("topic"),
        names.PARTITION: sql.col("partition"),
        names.OFFSET: sql.col("offset"),
        names.TIMESTAMP: sql.unix_millis("timestamp"),
        names.REASON: sql.col(_REASON),
        names.STAGE: sql.lit(stage),
        names.ATTEMPT: _attempt() if has_headers else sql.lit(1),
    }
    new = sql.array(*(_header(name, content) for name, content in added.items()))
    if not has_headers:
        return new
    kept = sql.filter("headers", lambda header: ~_is_ours(header))
    return sql.concat(sql.coalesce(kept, sql.array().cast(_HEADERS)), new.cast(_HEADERS))


_HEADERS = "array<struct<key:string,value:binary>>"


def _header(name: str, content: Column) -> Column:
    return sql.struct(
        sql.lit(name).alias("key"), content.cast("string").cast("binary").alias("value")
    )


def _is_ours(header: Column) -> Column:
    return header["key"].startswith(names.HEADER_PREFIX)


def _attempt() -> Column:
    """One more than the header of a record says that came back from a dead-letter topic, or as many
    as can be counted: to go beyond that is an error, which would end the query."""
    told = sql.filter("headers", lambda header: header["key"] == names.ATTEMPT)
    before = sql.try_element_at(told, sql.lit(1))["value"].cast("string").try_cast("int")
    return sql.least(sql.coalesce(before, sql.lit(0)), sql.lit(_COUNTED_MAX - 1)) + 1
