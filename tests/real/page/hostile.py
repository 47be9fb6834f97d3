"""A server whose every word is hostile: names, descriptions, schemas, results, errors, logs, stderr."""

import json
import sys

# Nothing is written into the source tree.
sys.dont_write_bytecode = True

from corpus import CORPUS

MOST = 128


def properties(words):
    return {word[:200]: {"type": "string", "description": word, "default": word, "title": word} for word in words[:20]}


def tool(at, words):
    return {
        "name": f"tool{at}",
        "title": words,
        "description": words,
        "inputSchema": {
            "type": "object",
            "description": words,
            "properties": {"say": {"type": "string", "description": words, "default": words}, "pick": {"type": "string", "enum": CORPUS[:60]}, **(properties(CORPUS) if at == 0 else {})},
        },
        "outputSchema": {"type": "object", "title": words},
        "annotations": {"title": words, "readOnlyHint": True},
    }


# Names that a client may be shown, however strange.
TOOLS = [tool(at, words) for at, words in enumerate(CORPUS)] + [
    {"name": words[:MOST], "description": "named", "inputSchema": {"type": "object"}} for words in CORPUS
]


def answer(message):
    method, params = message.get("method"), message.get("params", {})
    if method == "initialize":
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}, "logging": {}},
            "serverInfo": {"name": CORPUS[0], "title": CORPUS[16], "version": CORPUS[28]},
            "instructions": CORPUS[0],
        }
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        if params["name"] == "tool1":
            raise ValueError(CORPUS[16])
        return {
            "content": [{"type": "text", "text": words} for words in CORPUS]
            + [
                {"type": "image", "data": "PHN2ZyBvbmxvYWQ9cHduZWQoKT4=", "mimeType": CORPUS[28]},
                {"type": "resource_link", "uri": "javascript:pwned()", "name": CORPUS[0]},
                {"type": "resource", "resource": {"uri": "javascript:pwned()", "mimeType": "text/html", "text": CORPUS[0]}},
                {"type": CORPUS[16], "text": CORPUS[0]},
            ],
            "structuredContent": {words[:100]: words for words in CORPUS},
            "isError": params["name"] == "tool2",
        }
    return {}


for words in CORPUS:
    print(words, file=sys.stderr, flush=True)
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    reply = {"jsonrpc": "2.0", "id": message["id"]}
    try:
        reply["result"] = answer(message)
    except ValueError as error:
        reply["error"] = {"code": -32000, "message": str(error), "data": CORPUS}
    print(json.dumps(reply), flush=True)
