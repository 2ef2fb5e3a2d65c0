"""The entry point: runs one command line; whatever goes wrong becomes text on stderr and an exit code."""

import errno
import os
import sys
import traceback
from collections.abc import Sequence

import click

from twofold.cli.failure import SCHEMA, failure_data, failure_text
from twofold.cli.running import twofold
from twofold.core import FileError, TwofoldError, UsageError, to_json

DEBUG = "TWOFOLD_DEBUG"


def run(argv: Sequence[str] | None = None) -> int:
    """One command line and its exit code; only Ctrl-C is left to the caller."""
    words = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal that cannot show `×` gets `?`, not a traceback
            stream.reconfigure(errors="replace")
    try:
        return _run(words)
    except TwofoldError as error:
        return _fail(error, words)
    except click.UsageError as error:
        return _fail(_usage_error(error), words)
    except click.Abort as aborted:
        raise KeyboardInterrupt from aborted
    except OSError as error:
        if error.errno == errno.EPIPE:  # the reader of our output has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        return _fail(_file_error(error), words)
    except Exception as error:
        return _our_bug(error)


def _run(words: list[str]) -> int:
    code = 0
    try:
        with twofold.make_context("twofold", words) as context:
            twofold.invoke(context)
    except click.exceptions.NoArgsIsHelpError as asked:
        click.echo(asked.format_message())
    except click.exceptions.Exit as done:
        code = done.exit_code
    sys.stdout.flush()
    return code


def _fail(error: TwofoldError, words: list[str]) -> int:
    """Text for people on stderr; with `--json` the same as data on stdout."""
    if "--json" in words:
        click.echo(to_json({"schema": SCHEMA, **failure_data(error)}), nl=False)
    click.echo(failure_text(error), err=True)
    return error.exit_code


def _usage_error(error: click.UsageError) -> UsageError:
    message = error.format_message().rstrip(".")
    command = error.ctx.command_path if error.ctx else "twofold"
    return UsageError(message[:1].lower() + message[1:], hint=f"see `{command} --help`")


def _file_error(error: OSError) -> FileError:
    name = error.filename2 or error.filename
    where = f"`{name}`: " if name else ""
    hints = {
        errno.ENOSPC: "free some space, or write elsewhere",
        errno.EROFS: "write elsewhere",
        errno.EACCES: "check who may read and write there",
        errno.EISDIR: "name a file in it",
    }
    return FileError(f"{where}{(error.strerror or str(error)).lower()}", hint=hints.get(error.errno or 0, ""))


def _our_bug(error: Exception) -> int:
    if os.environ.get(DEBUG):
        traceback.print_exception(error)
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    click.echo(f"error[E-internal]: our bug, not yours: {what}", err=True)
    click.echo(f"hint: set {DEBUG}=1 to see where it happened", err=True)
    return 1
