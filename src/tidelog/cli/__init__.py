"""The command line: `main` has the table of commands, each command is a file beside it."""
