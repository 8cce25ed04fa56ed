"""Snakemake's messages for people: one live line of progress on a terminal, a few plain lines anywhere else.

Use it with ``--logger automedbench`` or ``logger: [automedbench]`` in a profile. Only what needs attention is printed:
warnings, errors, and each failed step with its command and the end of its log. Everything Snakemake says is still in
its own log file. ``-n -p``, ``--verbose`` and ``--debug-dag`` ask for details and get Snakemake's usual output; what
there is to do, with ``-n`` alone, is told by ``dry_run``.

Snakemake imports every installed plugin whenever it starts, so that nothing large is imported here.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable
from typing import Any

from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent

from snakemake_logger_plugin_automedbench.display import Display, make_display
from snakemake_logger_plugin_automedbench.steps import Steps, describe_failure, step_name

__all__ = ["LogHandler"]

# What Snakemake tells about itself in every call. Any other message is shown: a new one may matter.
_CHATTER = re.compile(
    r"None$|Using profile|Config file|Assuming unrestricted|Building DAG|Using shell|Provided |Rules claiming"
    r"|Conda environments: ignored|Singularity containers: ignored|Group jobs: inactive|Select jobs|Execute \d"
    r"|DAG of jobs will be updated|Complete log|Elapsed time|Shutting down|This was a dry-run|\s*Reasons:"
    r"|Will exit after finishing"
)


class LogHandler(LogHandlerBase):
    """The plugin: takes every record of Snakemake, keeps count of the steps and shows what matters."""

    def __post_init__(self) -> None:
        """Choose how to show: as Snakemake does where details are asked for, else in one line or in few."""
        settings = self.common_settings
        quiet = {each.name for each in settings.quiet or ()}
        self._steps = Steps()
        self._usual: logging.Handler | None = None
        self._silent = "ALL" in quiet
        self._shows_logs = bool(settings.show_failed_logs)
        self._display: Display | None = None
        listed = settings.dryrun and settings.printshellcmds and not self._silent
        if listed or settings.verbose or settings.debug_dag:
            self._usual = _usual_handler(settings)
        elif not self._silent:
            progress = "PROGRESS" not in quiet and not settings.dryrun
            self._display = make_display(sys.stdout if settings.stdout else sys.stderr, settings.nocolor, progress)
        self._events: dict[LogEvent, Callable[[Any], None]] = {
            LogEvent.RUN_INFO: self._plan,
            LogEvent.JOB_INFO: self._start,
            LogEvent.JOB_FINISHED: self._finish,
            LogEvent.JOB_ERROR: self._fail,
            LogEvent.PROGRESS: self._count,
            LogEvent.GROUP_ERROR: self._say,
            LogEvent.ERROR: self._report,
        }

    writes_to_stream = True
    writes_to_file = False
    has_filter = True
    has_formatter = True
    needs_rulegraph = False

    def emit(self, record: logging.LogRecord) -> None:
        """Show one record, or take note of it. Never raises: that would end all messages."""
        try:
            if self._usual is not None:
                self._usual.handle(record)
            elif self._display is not None:
                self._take(record)
        except (Exception, SystemExit):  # a broken pipe ends a rich console with SystemExit
            self.handleError(record)

    def close(self) -> None:
        """Take the live line away and say how far it came; Snakemake calls this in the end, also after Ctrl-C."""
        display, self._display = self._display, None
        if display is not None:
            display.stop(self._steps)
        super().close()

    # --- one method per kind of record ------------------------------------------------------------------------

    def _take(self, record: Any) -> None:
        event = getattr(record, "event", None)
        if event in self._events:
            self._events[event](record)
        elif record.levelno >= logging.WARNING or (event is None and not _CHATTER.match(record.getMessage())):
            self._say(record)

    def _plan(self, record: Any) -> None:
        self._steps.total = record.stats["total"]
        self._update()

    def _start(self, record: Any) -> None:
        self._steps.start(record.jobid, step_name(record.rule_name, record.wildcards))
        self._update()

    def _finish(self, record: Any) -> None:
        self._steps.finish(record.job_id)

    def _count(self, record: Any) -> None:
        self._steps.done, self._steps.total = record.done, record.total
        self._update()

    def _fail(self, record: Any) -> None:
        name = self._steps.fail(record.jobid, record.rule_name)
        logs = list(record.log) if self._shows_logs else []
        said = getattr(record, "rule_msg", None)  # of the executor: how a job of a cluster ended
        self._print(describe_failure(name, record.shellcmd, list(record.log), shown=logs, said=said))
        self._update()

    def _report(self, record: Any) -> None:
        """An error of Snakemake; that a command failed is told with the step."""
        if "CalledProcessError" not in record.getMessage():
            self._say(record)

    def _say(self, record: Any) -> None:
        self._print(record.getMessage())

    def _print(self, text: str) -> None:
        if self._display is not None:
            self._display.print(text)

    def _update(self) -> None:
        if self._display is not None:
            self._display.update(self._steps)


def _usual_handler(settings: Any) -> logging.Handler:
    """The handler that Snakemake would have without a plugin."""
    from snakemake.logging import ColorizingTextHandler, DefaultFilter, DefaultFormatter

    handler: logging.Handler = ColorizingTextHandler(
        nocolor=settings.nocolor, stream=sys.stdout if settings.stdout else sys.stderr
    )
    handler.setFormatter(DefaultFormatter(settings.quiet, settings.show_failed_logs))
    handler.addFilter(
        DefaultFilter(
            settings.quiet, settings.debug_dag, settings.verbose, settings.dryrun, settings.printshellcmds
        ).filter
    )
    return handler
