"""A server that writes what it is told to stderr, at once."""

import json
import sys

TOOL = {
    "name": "say",
    "description": "Says it on stderr.",
    "inputSchema": {"type": "object", "properties": {"words": {"type": "string"}}, "required": ["words"]},
}

print("talker says hello", file=sys.stderr, flush=True)
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    method, params = message["method"], message.get("params", {})
    result = {}
    if method == "initialize":
        result = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {"name": "talker", "version": "1"}}
    elif method == "tools/list":
        result = {"tools": [TOOL]}
    elif method == "tools/call":
        print(params["arguments"]["words"], file=sys.stderr, flush=True)
        result = {"content": [{"type": "text", "text": "said"}]}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
