"""How well a table finds tools: alone, and joined with a fielded BM25, on the development sets."""

import collections
import json
import math

import numpy as np
import scipy.sparse as sparse

import pieces as pieces_of

SETS = {"mcpzero": 700, "metatool": 700, "toollens": 700, "ultratool": 700, "sealtools": 700, "mcp20k": 300, "own": 2000}
MACRO = ("mcpzero", "metatool", "toollens", "ultratool", "sealtools")  # mcp20k repeats mcpzero's queries.
FIELD_WEIGHTS = {"name": 2, "description": 1, "server": 1, "parameters": 0.5, "parameter descriptions": 0.3}
K1, B = 1.2, 0.75
LATE_PIECES = 96  # Distinct pieces of a tool that late interaction looks at.
FUSED = (0.4, 0.6)
ALL_THREE = (0.3, 0.25, 0.45)
STOP = set(
    "a an and are as at be been being by can could did do does for from has have how i if in into is it its just me my "
    "of on or our please so some that the their them then there these they this to us was we what when where which who "
    "will with would you your am any".split()
)


class Set:
    """One development set: its tools, a fixed sample of its queries, and the lexical scores."""

    def __init__(self, folder, name):
        self.name = name
        self.tools = read_lines(folder / name / "tools.jsonl")
        queries = read_lines(folder / name / "queries.jsonl")
        order = np.random.default_rng(7).permutation(len(queries))[: SETS[name]]
        queries = [queries[i] for i in sorted(order)]
        self.queries = [q["query"] for q in queries]
        place = {tool["id"]: i for i, tool in enumerate(self.tools)}
        self.gold = []
        for query in queries:
            which = {}
            for k, gold in enumerate(query["gold"]):
                which[place[gold]] = k
                for other in (query.get("alt") or {}).get(gold, []):
                    which.setdefault(place[other], k)
            self.gold.append((which, len(query["gold"])))
        self.lexical = bm25f([fields(tool) for tool in self.tools], self.queries)

    def measure(self, scores):
        """Mean hit@1 and nDCG@10 in percent."""
        out = np.zeros((len(self.gold), 2))
        top = min(10, scores.shape[1])
        for i, (which, count) in enumerate(self.gold):
            best = np.argsort(-scores[i], kind="stable")[:top]
            seen, gain = set(), 0.0
            for position, tool in enumerate(best):
                k = which.get(int(tool))
                if k is None or k in seen:
                    continue
                seen.add(k)
                gain += 1 / math.log2(position + 2)
                out[i, 0] += position == 0
            out[i, 1] = gain / sum(1 / math.log2(p + 2) for p in range(min(count, 10)))
        return 100 * out.mean(0)


def read_lines(path):
    with open(path) as file:
        return [json.loads(line) for line in file]


def fields(tool):
    properties = (tool.get("input_schema") or {}).get("properties") or {}
    texts = [(p or {}).get("description") or "" if isinstance(p, dict) else "" for p in properties.values()]
    return {
        "name": tool["name"],
        "description": tool["description"] or "",
        "server": tool["server"] or "",
        "parameters": " ".join(properties),
        "parameter descriptions": " ".join(str(t) for t in texts),
        "server description": tool.get("server_description") or "",
    }


def document(tool, parts=("server", "name", "description", "parameters", "parameter descriptions")):
    """The text whose vector stands for a tool."""
    have = fields(tool)
    return " ".join(have[part] for part in parts)


STEMMER, STEMS = None, {}


def terms(text):
    global STEMMER
    if STEMMER is None:
        import snowballstemmer

        STEMMER = snowballstemmer.stemmer("english")
    out = []
    for run in pieces_of.runs(text):
        for part in pieces_of.camel_parts(run):
            word = part.lower()
            if word in STOP:
                continue
            if word not in STEMS:
                STEMS[word] = STEMMER.stemWord(word)
            out.append(STEMS[word])
    return out


def bm25f(tools, queries):
    """Scores of every query against every tool."""
    vocabulary, total = {}, None
    counted = {f: [collections.Counter(terms(tool[f])) for tool in tools] for f in FIELD_WEIGHTS}
    for counts in counted.values():
        for count in counts:
            for term in count:
                vocabulary.setdefault(term, len(vocabulary))
    for field, weight in FIELD_WEIGHTS.items():
        lengths = np.array([sum(c.values()) for c in counted[field]], float)
        mean = lengths[lengths > 0].mean() if lengths.any() else 1.0
        rows, columns, values = [], [], []
        for i, count in enumerate(counted[field]):
            for term, n in count.items():
                rows.append(i)
                columns.append(vocabulary[term])
                values.append(weight * n / (1 - B + B * lengths[i] / mean))
        matrix = sparse.csr_matrix((values, (rows, columns)), shape=(len(tools), len(vocabulary)))
        total = matrix if total is None else total + matrix
    total = total.tocsr()
    df = np.asarray((total > 0).sum(0)).ravel()
    idf = np.log(1 + (len(tools) - df + 0.5) / (df + 0.5))
    total.data = total.data * (K1 + 1) / (total.data + K1)
    weighted = (total @ sparse.diags(idf)).T.tocsr()
    asked = [collections.Counter(t for t in terms(q) if t in vocabulary) for q in queries]
    rows = [i for i, count in enumerate(asked) for _ in count]
    columns = [vocabulary[t] for count in asked for t in count]
    values = [n * 9 / (n + 8) for count in asked for n in count.values()]
    matrix = sparse.csr_matrix((values, (rows, columns)), shape=(len(queries), len(vocabulary)))
    return np.asarray((matrix @ weighted).todense(), np.float32)


def bag(lists, rows, among=None):
    """Texts as counts of pieces; with `among`, sorted, a piece's column is its place there."""
    lengths = [len(x) for x in lists]
    flat = np.fromiter((p for x in lists for p in x), np.int32, sum(lengths))
    flat = flat if among is None else np.searchsorted(among, flat)
    place = np.repeat(np.arange(len(lists)), lengths)
    return sparse.csr_matrix((np.ones(len(flat), np.float32), (place, flat)), shape=(len(lists), rows))


def unit(x):
    return x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-9)


def standard(scores):
    """Scores with mean 0 and deviation 1 over the tools, query by query."""
    return (scores - scores.mean(1, keepdims=True)) / np.maximum(scores.std(1, keepdims=True), 1e-9)


def vectors(table, cutter, texts, limit=None):
    lists = [cutter.of(t)[:limit] for t in texts]
    return unit(np.asarray(bag(lists, len(table)) @ table))


def late(table, cutter, queries, texts, limit=LATE_PIECES):
    """Late interaction: each query piece takes its nearest piece of the tool, weighted by its squared length."""
    size = np.linalg.norm(table, axis=1)
    asked = [cutter.of(q) for q in queries]
    held = [list(dict.fromkeys(cutter.of(t)))[:limit] for t in texts]
    empty = np.array([not x for x in held])
    starts = np.cumsum([0] + [max(1, len(x)) for x in held])[:-1]
    flat = np.array([p for x in held for p in (x or [0])])
    inside, flat = np.unique(flat, return_inverse=True)
    mentioned, out = sorted({p for x in asked for p in x}), np.zeros((len(queries), len(texts)), np.float32)
    near = unit(table[mentioned]) @ unit(table[inside]).T
    users = {}
    for i, x in enumerate(asked):
        for p in x:
            users.setdefault(p, []).append(i)
    for p, row in zip(mentioned, near):
        best = np.maximum.reduceat(row[flat], starts)
        best[empty] = 0
        for i in users[p]:
            out[i] += size[p] ** 2 * best
    return out


def report(folder, table, cutter, names=tuple(SETS), loaded=None):
    """Print the comparison; the macro nDCG of all three together."""
    columns = ("BM25F", "table", "fused", "late alone", "all three")
    print("hit@1 and nDCG@10. fused: table {} and BM25F {}; all three: table {}, late {}, BM25F {}".format(*FUSED, *ALL_THREE))
    print(f"{'set':10} " + " ".join(f"{c:>13}" for c in columns))
    rows = {}
    for name in names:
        data = (loaded or {}).get(name) or Set(folder, name)
        texts = [document(t) for t in data.tools]
        dense = vectors(table, cutter, data.queries) @ vectors(table, cutter, texts).T
        close = late(table, cutter, data.queries, texts)
        d, c, b = standard(dense), standard(close), standard(data.lexical)
        fused = FUSED[0] * d + FUSED[1] * b
        three = ALL_THREE[0] * d + ALL_THREE[1] * c + ALL_THREE[2] * b
        rows[name] = [data.measure(s) for s in (data.lexical, dense, fused, close, three)]
        print(f"{name:10} " + " ".join(f"{h:6.1f} {n:6.1f}" for h, n in rows[name]), flush=True)
    mean = np.mean([rows[n] for n in rows if n in MACRO], axis=0)
    print(f"{'macro of 5':10} " + " ".join(f"{h:6.1f} {n:6.1f}" for h, n in mean), flush=True)
    return mean[4][1]
