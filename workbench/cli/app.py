"""The application: how it starts, and what it says when it ends early."""

from __future__ import annotations

import logging
import sys
from contextlib import ExitStack
from types import TracebackType
from typing import NoReturn

import typer

from workbench.cli.say import Told, say
from workbench.errors import WorkbenchError

INTERRUPTED = "interrupted; the same command resumes what it had begun"

app = typer.Typer(
    name="workbench",
    help="What does a language model represent, and does that drive what it does?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def main() -> None:
    """Run the command line; a mistake that the user can fix ends with its message and status 1.

    Whatever ends a command early, ``--json`` still prints its one object.
    """
    logging.basicConfig(level=logging.WARNING, format="%(name)s: %(message)s", stream=sys.stderr)
    logging.getLogger("huggingface_hub").propagate = False  # it prints by itself
    told = Told(next((word for word in sys.argv[1:] if not word.startswith("-")), ""))

    def tell(
        _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None
    ) -> None:
        """Tell of an error that nobody foresaw; its traceback follows on stderr."""
        if error is not None and not isinstance(error, SystemExit) and "--json" in sys.argv:
            say(told.failed(f"{type(error).__name__}: {error}"))

    with ExitStack() as leaving:
        leaving.push(tell)
        try:
            app(standalone_mode=True, obj=told)
        except WorkbenchError as error:
            _fail(told, str(error), 1)
        except KeyboardInterrupt:
            _fail(told, INTERRUPTED, 130)
        except SystemExit as stop:
            if stop.code == 130:  # typer's own answer to Ctrl-C
                _fail(told, INTERRUPTED, 130)
            if stop.code == 2 and "--json" in sys.argv:
                _fail(told, "wrong usage, as said above; --help shows what there is", 2)
            raise


def _fail(told: Told, error: str, status: int) -> NoReturn:
    if "--json" in sys.argv:
        say(told.failed(error))
    print(f"error: {error}", file=sys.stderr)
    sys.exit(status)
