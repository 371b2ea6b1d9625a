"""What to do when records that a query was to read are gone: stop, or say so and go on.

Which of the two is up to the option `failOnDataLoss`. Either way there is a sentence that names
topic, partition and offsets.
"""

import logging
from typing import Final

_log: Final = logging.getLogger("tidelog.spark")
_ADVICE: Final = "to go on with what is there, set the option failOnDataLoss to false"


class DataLoss(RuntimeError):
    """Records that were to be read have aged out, were cut off, or went with their topic."""


class Losses:
    def __init__(self, *, is_error: bool) -> None:
        self._is_error = is_error

    def report(self, what: str) -> None:
        if self._is_error:
            raise DataLoss(f"{what}; {_ADVICE}")
        _log.warning("%s; going on with what is there, since failOnDataLoss is false", what)
