"""An MCP server over standard input and output: one tool that counts, one that always fails."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

ABOUT = {"count": "Count the cells of a smear", "fail": "Fail"}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """The result of a request."""
    if method == "initialize":
        info = {"name": "cells", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        schema = {"type": "object", "properties": {}}
        return {"tools": [{"name": name, "description": ABOUT[name], "inputSchema": schema} for name in ABOUT]}
    if method == "tools/call":
        text = f"{os.environ['CELLS']} cells" if params["name"] == "count" else "no"
        return {"content": [{"type": "text", "text": text}], "isError": params["name"] == "fail"}
    return {}


for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:  # a notification has none
        result = answer(request["method"], request.get("params") or {})
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
