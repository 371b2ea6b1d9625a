"""The data pipeline on Spark: source, sink, planning by offsets, audit."""
