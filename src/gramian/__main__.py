"""The command line as `python -m gramian`."""

from gramian.cli.main import run

run()
