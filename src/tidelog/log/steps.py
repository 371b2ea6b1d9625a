"""Work on files in steps: what may wait for the disk is handed out, the rest runs in between.

A generator of steps does what is quick itself, and yields what waits in system calls as a
function. Whoever drives it runs that beside the loop, and only then asks for the next step; an
error of the disk is thrown into the generator where it yielded. So the state of a log changes
only between waits, in the loop, and never while somebody else looks at it.
"""

from collections.abc import Callable, Generator

Wait = Callable[[], object]
Steps = Generator[Wait, None, None]


def run_now(steps: Steps) -> None:
    """All of it at once, where waiting does not matter."""
    try:
        wait = next(steps)
        while True:
            try:
                wait()
            except OSError as error:
                wait = steps.throw(error)
            else:
                wait = next(steps)
    except StopIteration:
        return
