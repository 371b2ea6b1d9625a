"""What a client meets on the way to a broker. What a broker itself says is a `KafkaError`."""

from tidelog.client.addresses import Address


class Unreachable(ConnectionError):
    """A broker that cannot be reached, went away, or is no broker: who, why, and what to do."""

    def __init__(self, address: Address, why: str) -> None:
        super().__init__(why)
        self.address = address
