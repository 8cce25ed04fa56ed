"""The ReAct agent of Inspect with a shell and Python; reads the brief from its input."""

import os
import sys

sys.path.insert(0, "/opt/agent/lib")

from inspect_ai import Task, eval
from inspect_ai.agent import react
from inspect_ai.dataset import Sample
from inspect_ai.tool import bash, python

LONGEST_S = 24 * 3600

solver = react(tools=[bash(timeout=LONGEST_S), python(timeout=LONGEST_S)])
task = Task(dataset=[Sample(input=sys.stdin.read())], solver=solver, sandbox="local")
model = "openai-api/openai/" + os.environ["OPENAI_MODEL"]
logs = eval(task, model=model, display="plain", log_dir=os.environ["HOME"] + "/logs", score=False)
sys.exit(logs[0].status != "success")
