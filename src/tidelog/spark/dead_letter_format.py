"""What a dead letter looks like: the record as it was, in the topic `<topic>.dlq`, with headers
that say where it came from and why it is there. Their values are text.

    tidelog.dlq.topic        where the record was read
    tidelog.dlq.partition
    tidelog.dlq.offset
    tidelog.dlq.timestamp    the record's own, in milliseconds since 1970
    tidelog.dlq.reason       why it did not decode
    tidelog.dlq.stage        the step that could not decode it
    tidelog.dlq.attempt      how often it has failed; 2 if it came back once
"""

from typing import Final

TOPIC_SUFFIX: Final = ".dlq"
HEADER_PREFIX: Final = "tidelog.dlq."
TOPIC: Final = HEADER_PREFIX + "topic"
PARTITION: Final = HEADER_PREFIX + "partition"
OFFSET: Final = HEADER_PREFIX + "offset"
TIMESTAMP: Final = HEADER_PREFIX + "timestamp"
REASON: Final = HEADER_PREFIX + "reason"
STAGE: Final = HEADER_PREFIX + "stage"
ATTEMPT: Final = HEADER_PREFIX + "attempt"
