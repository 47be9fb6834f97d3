"""Tools that could exist and what people would ask for when they need them, written for this project.

One file a field of life in `questions/`. A line is a tool with its questions ("asked"), or a request that takes several
tools of one server ("query", "gold"; "Server::tool" where it is of another). Every eighth server is held back: nothing
is fitted to its questions, so that they can say whether the fit helps people it has not met.
"""

import hashlib
import json
import pathlib

FOLDER = pathlib.Path(__file__).resolve().parent / "questions"
HELD_BACK = 8  # One server in so many.


class Questions:
    """Tools as the development sets write them, questions, and the numbers of the tools that answer each."""

    def __init__(self, held_back):
        self.tools, self.asked, self.answers, self.servers = [], [], [], []
        for path in sorted(FOLDER.glob("*.jsonl")):
            self.read([json.loads(line) for line in open(path)], held_back)

    def read(self, lines, held_back):
        place, servers = {}, {}
        written = {(line["server"], line["name"]) for line in lines if "asked" in line}
        for line in lines:
            if "asked" not in line or is_held_back(line["server"]) != held_back:
                continue
            number = place[line["server"], line["name"]] = len(self.tools)
            servers.setdefault(line["server"], []).append(number)
            self.tools.append(as_tool(line))
            for question in line["asked"]:
                self.asked.append(question)
                self.answers.append([number])
        for line in lines:
            if "gold" not in line:
                continue
            names = [tuple(n.split("::", 1)) if "::" in n else (line["server"], n) for n in line["gold"]]
            if unknown := [name for name in names if name not in written]:
                raise SystemExit(f"{line['query']!r} wants {unknown}, which no line of its file is")
            # A request over tools of both kinds teaches nothing and is not asked.
            answers = [place[name] for name in names if name in place]
            if len(answers) == len(line["gold"]):
                self.asked.append(line["query"])
                self.answers.append(answers)
        self.servers.extend(servers.values())


def is_held_back(server):
    return hashlib.sha256(server.encode()).digest()[0] % HELD_BACK == 0


def as_tool(line):
    parameters = line.get("parameters") or {}
    return {
        "id": f"{line['server']}::{line['name']}",
        "server": line["server"],
        "server_description": line.get("server_description") or "",
        "name": line["name"],
        "description": line.get("description") or "",
        "input_schema": {"type": "object", "properties": {k: {"description": str(v or "")} for k, v in parameters.items()}},
    }


def write_set(folder, held_back):
    """The same as a development set: what `metamcp eval` and `cargo xtask eval` read."""
    own = Questions(held_back)
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "tools.jsonl", "w") as file:
        file.writelines(json.dumps(tool, ensure_ascii=False) + "\n" for tool in own.tools)
    with open(folder / "queries.jsonl", "w") as file:
        for number, (question, answers) in enumerate(zip(own.asked, own.answers)):
            line = {"id": f"own-{number}", "query": question, "gold": [own.tools[a]["id"] for a in answers]}
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
