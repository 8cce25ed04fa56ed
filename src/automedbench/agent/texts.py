"""Texts that the harness says to the model between turns; each starts with its bracketed tag."""

from __future__ import annotations

CONTINUE_EMPTY = "[CONTINUE] Your reply was empty. Call execute_code, or submit_results when the work is finished."

CONTINUE_TEXT = (
    "[CONTINUE] Your reply called no tool, so nothing was executed. Call execute_code to go on, or submit_results "
    "when the work is finished. A second reply without a call ends the run."
)

FORMAT_FENCE = (
    "[FORMAT] Code in a fenced block is not executed. Send it as a call of execute_code with 'language' and 'code'. "
    "A second reply without a call ends the run."
)

FORMAT_LENGTH = (
    "[FORMAT] Your reply was cut by its length limit, and nothing incomplete was executed. Send a shorter reply: "
    "write long programs to files in several calls. Three cut replies in a row end the run."
)

INTERRUPTED = (
    "The machine was interrupted during this call, and the call was executed again from its start. Files that it "
    "writes may have been written in part before."
)
