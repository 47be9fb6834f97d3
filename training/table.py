"""The shipped file: quantise, write, read back; and the fixture that holds other readers to it."""

import json
import struct

import numpy as np

import evaluate
import pieces as pieces_of

MAGIC = b"METATAB1"
FIXTURE_COMPONENTS = 8
FIXTURE_TEXTS = [
    "read_file",
    "listS3Buckets",
    "HTTPServer restart",
    "GitHub create_pull_request",
    "Fetch all URLs and IDs from the APIs",
    "What's the weather like in Paris tomorrow?",
    "Send an e-mail to my colleague about the meeting",
    "convert 20 USD to EUR",
    "I'm creating party appetizers using the ingredient shrimp.",
    "postgres-query: run a read-only SQL query against the database",
    "YouTube transcript downloader",
    "browser_take_screenshot",
    "sequentialthinking",
    "kubectl get pods -n kube-system",
    "translate this text into German",
    "getUserByID",
    "XMLHttpRequest",
    "slack.chat.postMessage",
    "find restaurants near me that are open now",
    "Create a calendar event next Monday at 10:30",
    "calculate the area of a circle with radius 5",
    "delete branch feature/login",
    "image generation with DALL-E 3",
    "search arXiv papers on quantum computing",
    "a naïve café résumé",
    "user’s “smart” quotes — and dashes",
    "日本語のテキスト",
    "mixed 東京 weather",
    "",
    "   ...!!!   ",
    "UPPER CASE WORDS",
    "x" * 65,
    "base64 encode sha256 md5",
    "OAuth2TokenRefresh",
    "v1/nutrition",
    "stock price of AAPL",
    "List all open issues assigned to me in the repository and sort them by priority",
    "play music on Spotify",
    "the the the the",
    "memory store remember knowledge graph entities",
]


def quantise(table):
    """Bytes and a scale a row; the largest component of a row becomes 127."""
    scale = np.abs(table).max(1) / 127
    scale[scale == 0] = 1
    return np.clip(np.round(table / scale[:, None]), -127, 127).astype(np.int8), scale.astype(np.float32)


def write(path, names, table):
    """Write the rows sorted by the bytes of their piece."""
    order = sorted(range(len(names)), key=lambda i: names[i].encode())
    blobs = [names[i].encode() for i in order]
    values, scale = quantise(table[order])
    offsets = np.cumsum([0] + [len(b) for b in blobs]).astype("<u4")
    with open(path, "wb") as file:
        file.write(MAGIC + struct.pack("<III", len(blobs), table.shape[1], int(offsets[-1])))
        file.write(offsets.tobytes() + b"".join(blobs) + scale.astype("<f4").tobytes() + values.tobytes())


def read(path):
    """(names, table) as a reader sees them."""
    blob = path.read_bytes()
    assert blob[:8] == MAGIC
    rows, dims, size = struct.unpack("<III", blob[8:20])
    offsets = np.frombuffer(blob, "<u4", rows + 1, 20)
    at = 20 + 4 * (rows + 1)
    names = [blob[at + offsets[i] : at + offsets[i + 1]].decode() for i in range(rows)]
    at += size
    scale = np.frombuffer(blob, "<f4", rows, at)
    values = np.frombuffer(blob, np.int8, rows * dims, at + 4 * rows).reshape(rows, dims)
    assert len(blob) == at + 4 * rows + rows * dims
    return names, values.astype(np.float32) * scale[:, None]


def write_fixture(path, names, table):
    cutter = pieces_of.Pieces(names)
    found = evaluate.vectors(table, cutter, FIXTURE_TEXTS)
    with open(path, "w") as file:
        for text, vector in zip(FIXTURE_TEXTS, found):
            line = {
                "text": text,
                "pieces": [names[i] for i in cutter.of(text)],
                "vector": [round(float(x), 6) for x in vector[:FIXTURE_COMPONENTS]],
            }
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
