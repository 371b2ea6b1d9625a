"""`tidelog kernels`: what is compiled, ahead of its first use.

`warm` compiles what the cache on disk does not have yet: loops over records, so that a broker's
child processes and Spark's executors start in a fraction of a second and do not all compile at
once; and the modules that carry a broker's data, which only this command does.
"""

from importlib import import_module
from pkgutil import iter_modules
from time import perf_counter

import typer

from tidelog import records

app = typer.Typer(help="Loops over records and the broker, compiled.", no_args_is_help=True)


@app.callback()
def kernels() -> None:
    """Loops over records and the broker, compiled."""


@app.command()
def warm() -> None:
    """Compiles all kernels and the broker into the cache, if they are not there.

    The broker's part takes a minute or two, a C compiler, and pip install 'tidelog[compiled]'.
    Without them a broker does the same for a quarter more CPU.
    """
    started = perf_counter()
    # Importing a module declares, and so compiles or loads, its kernels.
    for module in iter_modules(records.__path__):
        if "kernel" in module.name:
            import_module(f"{records.__name__}.{module.name}")
    # Imported here: they load numba, which other commands do without.
    from tidelog.cli.compiling import compile_broker
    from tidelog.records.kernels import FOLDER, compiled
    from tidelog.records.native import KERNELS, code

    code.find()

    for kernel in compiled:
        verb = "loaded" if kernel.from_cache else "compiled"
        typer.echo(f"{verb} {kernel.name} in {kernel.seconds * 1000:.0f} ms")
    where = FOLDER or "no folder that can be written: they are compiled by every process"
    typer.echo(f"{len(KERNELS)} of them ready for processes without numba")
    typer.echo(f"{len(compiled)} kernels in {perf_counter() - started:.1f} s, kept in {where}")
    if FOLDER is not None:
        typer.echo("compiling the broker, if it is not there yet ...")
        began = perf_counter()
        typer.echo(f"{compile_broker(FOLDER)} ({perf_counter() - began:.1f} s)")
