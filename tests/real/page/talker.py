"""A server that writes what it is told to stderr, at once, and repeats what a form asked for."""

import json
import sys

TOOL = {
    "name": "say",
    "description": "Says it on stderr.",
    "inputSchema": {"type": "object", "properties": {"words": {"type": "string"}}, "required": ["words"]},
}
CHOOSE = {
    "name": "choose",
    "description": "Repeats what it was asked for.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "colour": {"type": "string", "enum": ["red", "blue"]},
            "loud": {"type": "boolean"},
            "count": {"type": "integer"},
            "names": {"type": "array", "items": {"type": "string"}},
            "more": {"type": "object"},
        },
        "required": ["colour", "count"],
    },
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
        result = {"tools": [TOOL, CHOOSE]}
    elif method == "tools/call" and params["name"] == "choose":
        asked = json.dumps(params["arguments"], sort_keys=True)
        result = {"content": [{"type": "text", "text": f"asked for {asked}"}]}
    elif method == "tools/call":
        print(params["arguments"]["words"], file=sys.stderr, flush=True)
        result = {"content": [{"type": "text", "text": "said"}]}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
