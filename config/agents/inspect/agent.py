"""The ReAct agent of Inspect with a shell and Python of its own; reads the brief from its input."""

import asyncio
import json
import os
import sys

sys.path.insert(0, "/opt/agent/lib")

from inspect_ai import Task, eval
from inspect_ai.agent import react
from inspect_ai.dataset import Sample
from inspect_ai.tool import Tool, tool


async def told(*words: str) -> str:
    """What a program did in the workspace, as its model is told."""
    program = await asyncio.create_subprocess_exec(
        *words, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await program.communicate()
    return json.dumps({"exit_code": program.returncode, "output": output.decode("utf-8", "replace")})


@tool
def bash() -> Tool:
    """A shell."""

    async def execute(command: str) -> str:
        """Run a shell command in the workspace.

        Args:
            command: the command
        """
        return await told("bash", "-c", command)

    return execute


@tool
def python() -> Tool:
    """Python."""

    async def execute(code: str) -> str:
        """Run a Python program in the workspace.

        Args:
            code: the program
        """
        return await told("python3", "-c", code)

    return execute


if __name__ == "__main__":
    task = Task(dataset=[Sample(input=sys.stdin.read())], solver=react(tools=[bash(), python()]))
    model = "openai-api/openai/" + os.environ["OPENAI_MODEL"]
    logs = eval(task, model=model, display="plain", log_dir=os.environ["HOME"] + "/logs", score=False)
    sys.exit(logs[0].status != "success")
