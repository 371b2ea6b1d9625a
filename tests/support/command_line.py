"""`tidelog` as it is typed, run in this process."""

from typer.testing import CliRunner

from tidelog.cli.main import app


def run(*arguments: str) -> tuple[int, str, str]:
    """Status, standard output and standard error."""
    result = CliRunner().invoke(app, list(arguments), prog_name="tidelog")
    return result.exit_code, result.stdout, result.stderr
