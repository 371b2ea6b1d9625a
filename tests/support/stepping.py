"""Work in steps, with something else done in the middle of it."""

from collections.abc import Callable

from tidelog.log.steps import Steps


def run_with(steps: Steps, at: int, between: Callable[[], None]) -> None:
    """Drives steps, and does something else at one point: before the first wait, after it, and
    so on; at the end if there are fewer points."""
    point, error = 0, None
    while True:
        try:
            wait = next(steps) if error is None else steps.throw(error)
        except StopIteration:
            break
        error = None
        for run in (between, wait) if point == at else (wait, between):
            if run is wait or point in (at, at - 1):
                try:
                    run()
                except OSError as raised:
                    error = raised
        point += 2
    if point <= at:
        between()
