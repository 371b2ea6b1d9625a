"""What an explored history ends with when something must never be, and is."""


class Violation(AssertionError):
    """`invariant` is the id that `reliability` gives it: V1 to V20, H1 to H8, R1, R2."""

    def __init__(self, invariant: str, what: str) -> None:
        super().__init__(f"{invariant}: {what}")
        self.invariant = invariant
        self.what = what
