"""Snakemake's messages for people: one live line of progress on a terminal, a few plain lines anywhere else.

Use it with ``--logger automedbench`` or ``logger: [automedbench]`` in a profile. Only what needs attention is printed:
warnings, errors, and each failed step with its command and the end of its log. All messages of Snakemake are still in
its own log file. ``-n -p``, ``--verbose`` and ``--debug-dag`` ask for details and get Snakemake's usual output; what
there is to do, with ``-n`` alone, is printed by ``dry_run``.

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

from snakemake_logger_plugin_automedbench.display import make_display
from snakemake_logger_plugin_automedbench.steps import Steps, describe_failure, step_name

__all__ = ["LogHandler"]

# Messages of Snakemake about itself, in every call. Any other message is shown: a new one may matter.
_CHATTER = re.compile(
    r"None$|Using profile|Config file|Assuming unrestricted|Building DAG|Using shell|Provided |Rules claiming"
    r"|Conda environments: ignored|Singularity containers: ignored|Group jobs: inactive|Select jobs|Execute \d"
    r"|DAG of jobs will be updated|Complete log|Elapsed time|Shutting down|This was a dry-run|\s*Reasons:"
    r"|Will exit after finishing"
)
_INTERRUPTION = "Terminating processes on user request"
# Of the user, not of the Snakefile: its lines and frames say nothing. Behind each: what else to say.
_MISTAKES = {
    "ConfigError": [],
    "MissingRuleException": [
        "Targets: `snakemake --list-target-rules`; of a run results/runs/<agent>/<task>/<tier>/r<k>/score.json, with "
        "names of this campaign."
    ],
}
_OF_DEVELOPERS = " (if you use input functions make sure that they don't raise unexpected exceptions)."
_OS_ERRORS = {"OSError", *(each.__name__ for each in OSError.__subclasses__())}


class LogHandler(LogHandlerBase):
    """The plugin: takes every record of Snakemake, keeps count of the steps and shows what matters."""

    def __post_init__(self) -> None:
        """Choose a display: Snakemake's own where details are requested, else one line or a few."""
        settings = self.common_settings
        quiet = {each.name for each in settings.quiet or ()}
        self._steps = Steps()
        self._silent = "ALL" in quiet
        self._shows_logs = bool(settings.show_failed_logs)
        listed = settings.dryrun and settings.printshellcmds and not self._silent
        details = listed or settings.verbose or settings.debug_dag
        self._usual = _usual_handler(settings) if details else None
        progress = not (details or settings.dryrun or quiet & {"ALL", "PROGRESS"})
        self._display = make_display(sys.stdout if settings.stdout else sys.stderr, settings.nocolor, progress)
        self._events: dict[LogEvent, Callable[[Any], None]] = {
            LogEvent.RUN_INFO: self._plan,
            LogEvent.JOB_INFO: self._start,
            LogEvent.JOB_FINISHED: self._finish,
            LogEvent.JOB_ERROR: self._fail,
            LogEvent.PROGRESS: self._count,
            LogEvent.GROUP_ERROR: self._print_message,
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
            elif not self._silent:
                self._take(record)
        except (Exception, SystemExit):  # a broken pipe ends a rich console with SystemExit
            self.handleError(record)

    def close(self) -> None:
        """Remove the live line and print the summary; Snakemake calls this in the end, also after Ctrl-C."""
        if not self._silent:
            self._silent = True
            self._display.stop(self._steps)
        super().close()

    # --- one method per kind of record ------------------------------------------------------------------------

    def _take(self, record: Any) -> None:
        event = getattr(record, "event", None)
        if event in self._events:
            self._events[event](record)
        elif record.getMessage().startswith(_INTERRUPTION):
            self._steps.interrupted = True
            self._print_message(record)
        elif record.levelno >= logging.WARNING or (event is None and not _CHATTER.match(record.getMessage())):
            self._print_message(record)

    def _plan(self, record: Any) -> None:
        self._steps.total = record.stats["total"]
        self._display.update(self._steps)

    def _start(self, record: Any) -> None:
        self._steps.running[record.jobid] = step_name(record.rule_name, record.wildcards)
        self._display.update(self._steps)

    def _finish(self, record: Any) -> None:
        self._steps.running.pop(record.job_id, None)

    def _count(self, record: Any) -> None:
        self._steps.done, self._steps.total = record.done, record.total
        self._display.update(self._steps)

    def _fail(self, record: Any) -> None:
        if self._steps.interrupted:  # the signal ended it as well
            self._steps.running.pop(record.jobid, None)
            return
        name = self._steps.fail(record.jobid, record.rule_name)
        message = getattr(record, "rule_msg", None)  # of the executor: how a job of a cluster ended
        self._display.print(describe_failure(name, record.shellcmd, record.log, self._shows_logs, message))
        self._display.update(self._steps)

    def _report(self, record: Any) -> None:
        """Print an error of Snakemake; that a command failed is printed with the step, what the system says alone."""
        exception = getattr(record, "exception", None)
        if exception in _OS_ERRORS:
            self._display.print(_reason(record.getMessage()))
        elif exception in _MISTAKES:
            lines = [line for line in record.getMessage().splitlines()[1:] if not line.startswith('  File "')]
            lines[0] = f"{exception}: {lines[0].removesuffix(_OF_DEVELOPERS)}"
            self._display.print("\n".join([*lines, *_MISTAKES[exception]]))
        elif "CalledProcessError" not in record.getMessage() and not self._steps.interrupted:
            self._print_message(record)

    def _print_message(self, record: Any) -> None:
        self._display.print(record.getMessage())


def _reason(text: str) -> str:
    """The one line of an error of the system that says what is wrong; the traceback stands in Snakemake's log."""
    return next((line for line in text.splitlines() if re.match(r"(\w+: )?\[Errno \d+\]", line)), text)


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
