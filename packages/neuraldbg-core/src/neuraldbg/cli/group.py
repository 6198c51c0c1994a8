# SPDX-License-Identifier: MIT
"""The group of all commands: takes in those of plugins, and turns errors into one clear line."""

from __future__ import annotations

import errno
from typing import Any

import click

from neuraldbg.errors import NeuralDbgError, TraceError, UnknownNameError

TRACE_UNUSABLE = 3
OTHER_FAILURE = 4


class Failed(click.ClickException):
    """An error that ends the command with one line on stderr and an exit code of its own."""

    def __init__(self, error: BaseException | str, exit_code: int) -> None:
        super().__init__(" ".join(str(error).split()))
        self.exit_code = exit_code  # type: ignore[misc]  # click calls it a class variable


class Commands(click.Group):
    """Built-in commands start at once; plugins are loaded where one of theirs may be meant."""

    _is_complete = False

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return every name, for `--help`."""
        self._take_in_plugins()
        return super().list_commands(ctx)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command by its name."""
        command = super().get_command(ctx, cmd_name)
        if command is None:
            self._take_in_plugins()
            command = super().get_command(ctx, cmd_name)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run the chosen command.

        Raises:
            Failed: It cannot be done; the message says why.
        """
        try:
            return super().invoke(ctx)
        except UnknownNameError as error:
            raise click.UsageError(str(error), ctx) from error
        except TraceError as error:
            raise Failed(error, TRACE_UNUSABLE) from error
        except NeuralDbgError as error:
            raise Failed(error, OTHER_FAILURE) from error
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise
            raise Failed(error, OTHER_FAILURE) from error

    def _take_in_plugins(self) -> None:
        if not self._is_complete:
            from neuraldbg.plugins import PluginHost

            self._is_complete = True
            PluginHost().commands(self)
