"""`tidelog kernels`: the compiled loops, ahead of their first use.

`warm` compiles what the cache on disk does not have yet, so that a broker's child processes
and Spark's executors start in a fraction of a second and do not all compile at once.
"""

from importlib import import_module
from pkgutil import iter_modules
from time import perf_counter

import typer

from tidelog import records

app = typer.Typer(help="Compiled loops over records.", no_args_is_help=True)


@app.callback()
def kernels() -> None:
    """Compiled loops over records."""


@app.command()
def warm() -> None:
    """Compiles all kernels into the cache, or loads them if they are there."""
    started = perf_counter()
    # Importing a module declares, and so compiles or loads, its kernels.
    for module in iter_modules(records.__path__):
        if "kernel" in module.name:
            import_module(f"{records.__name__}.{module.name}")
    # Imported here: they load numba, which other commands do without.
    from tidelog.records.kernels import FOLDER, compiled
    from tidelog.records.native import KERNELS, code

    code.find()

    for kernel in compiled:
        verb = "loaded" if kernel.from_cache else "compiled"
        typer.echo(f"{verb} {kernel.name} in {kernel.seconds * 1000:.0f} ms")
    where = FOLDER or "no folder that can be written: they are compiled by every process"
    typer.echo(f"{len(KERNELS)} of them ready for processes without numba")
    typer.echo(f"{len(compiled)} kernels in {perf_counter() - started:.1f} s, kept in {where}")
