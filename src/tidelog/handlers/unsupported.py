"""What a client is told that asks for something in a version, or of an API, that is not served."""

from tidelog.handlers import api_versions, old_produce
from tidelog.handlers.together import PRODUCE
from tidelog.wire.header import RequestHeader


def answer_to_unsupported(header: RequestHeader, frame: memoryview, at: int) -> bytes | None:
    """A client that asks which versions there are in a version we do not have is told so in the
    oldest one; old producers are refused in their own. For the rest there is no answer that they
    could read."""
    if header.api_key == api_versions.API.key:
        return api_versions.refusal(header.correlation_id)
    if header.api_key == PRODUCE and header.version in old_produce.VERSIONS:
        return old_produce.refusal(header, frame, at)
    return None
