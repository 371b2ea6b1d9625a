"""How Spark finds the format `tidelog`: it looks for modules named `pyspark_*` that have a
`DefaultSource`, in every session, so that installing the package is the whole set-up.
"""

from tidelog.spark.read_commits import commit_read
from tidelog.spark.source import TidelogDataSource as DefaultSource
from tidelog.spark.worker_python import use_this_python

__all__ = ["DefaultSource", "commit_read", "use_this_python"]
