"""Makes some calls of a gateway over HTTP, and reads its metrics with the parser of the Prometheus project.

Arguments: the address of the gateway, its token, the format (openmetrics or prometheus). Prints families as JSON.
"""

import json
import sys
import urllib.request

from prometheus_client import parser as prometheus
from prometheus_client.openmetrics import parser as openmetrics

ADDRESS, TOKEN, FORMAT = sys.argv[1:4]
ACCEPT = {
    "openmetrics": "application/openmetrics-text;version=1.0.0",
    "prometheus": "text/plain;version=0.0.4",
}


def send(path, body=None, headers=None):
    request = urllib.request.Request(ADDRESS + path, data=body and json.dumps(body).encode())
    request.add_header("Authorization", f"Bearer {TOKEN}")
    for name, value in (headers or {}).items():
        request.add_header(name, value)
    with urllib.request.urlopen(request, timeout=60) as response:
        return response.headers, response.read().decode()


def post(body, **headers):
    both = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    return send("/mcp", body, both | {name.replace("_", "-"): value for name, value in headers.items()})


def main():
    params = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "reader", "version": "1"},
    }
    head, _ = post({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
    session = head["Mcp-Session-Id"]
    post({"jsonrpc": "2.0", "method": "notifications/initialized"}, Mcp_Session_Id=session)
    for number, (tool, args) in enumerate([("echo", {"text": "a"}), ("echo", {"text": "b"}), ("fail", {})]):
        call = {"name": "mcp_call", "arguments": {"server": 'odd "name"', "tool": tool, "args": args}}
        post({"jsonrpc": "2.0", "id": number + 2, "method": "tools/call", "params": call}, Mcp_Session_Id=session)
    head, text = send("/metrics", headers={"Accept": ACCEPT[FORMAT]})
    parse = {"openmetrics": openmetrics, "prometheus": prometheus}[FORMAT].text_string_to_metric_families
    families = [
        {
            "name": family.name,
            "type": family.type,
            "unit": family.unit,
            "help": family.documentation,
            "samples": [[sample.name, sample.labels, sample.value] for sample in family.samples],
        }
        for family in parse(text)
    ]
    print(json.dumps({"type": head["Content-Type"], "families": families}))


main()
