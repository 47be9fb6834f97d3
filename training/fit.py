"""Fit the table: a ridge fit of bags of pieces to the teacher, contrast between pairs, then questions that must find their tool."""

import time

import numpy as np
import scipy.sparse as sparse

from evaluate import bag, unit

RIDGE = 1.5  # Pull of a row to the teacher's vector of the single piece; rare pieces stay near it.
ROUNDS = 25  # Conjugate gradient steps; the residual no longer moves after twenty.
BATCH = 384
BLOCK = 8  # Pairs of one service that meet in a batch: the hard negatives.
TEMPERATURE = 0.05
LONGEST_BAG = 48  # As much as the teacher read.
ASKED_AT_ONCE = 512  # Tools that meet in a batch, whole servers of them.
ASKED_TEMPERATURE = 0.07


def project(vectors, dims):
    """The directions of the teacher's space that hold most of its texts."""
    _, directions = np.linalg.eigh(vectors.T @ vectors)
    return directions[:, ::-1][:, :dims].astype(np.float32)


def ridge(lists, targets, start, strength=RIDGE):
    """Rows E that bring bag @ E near the targets while staying near `start`."""
    count = bag(lists, len(start))
    lengths = np.maximum(np.asarray(count.sum(1)).ravel(), 1)
    # A sum of n loosely related rows grows like the root of n.
    scaled = sparse.diags((lengths**-0.5).astype(np.float32)) @ count
    turned = scaled.T.tocsr()

    def apply(m):
        return turned @ (scaled @ m) + strength * m

    rows = start.copy()
    residual = turned @ targets + strength * start - apply(rows)
    step, size = residual.copy(), (residual * residual).sum(0)
    for _ in range(ROUNDS):
        moved = apply(step)
        length = size / np.maximum((step * moved).sum(0), 1e-12)
        rows += length * step
        residual -= length * moved
        fresh = (residual * residual).sum(0)
        step = residual + fresh / np.maximum(size, 1e-12) * step
        size = fresh
    fit = (unit(scaled @ rows) * unit(targets)).sum(1).mean()
    print(f"  ridge: mean cosine to the teacher {fit:.3f}", flush=True)
    return rows.astype(np.float32)


def weigh(single, lists):
    """The starting rows: the teacher's single pieces, rarer ones longer."""
    df = np.zeros(len(single))
    for pieces in lists:
        df[list(set(pieces))] += 1
    idf = np.log(1 + len(lists) / (1 + df))
    return (single * (0.35 * idf / idf.mean())[:, None]).astype(np.float32)


class Adam:
    """Moves the rows that a batch touched; the others wait."""

    def __init__(self, rows, rate):
        self.rows, self.first, self.second = rows.copy(), np.zeros_like(rows), np.zeros_like(rows)
        self.rate = rate * float(np.abs(rows).mean())

    def step(self, touched, grad, number, share):
        """One step of many; `share` of the full rate."""
        first = self.first[touched] = 0.9 * self.first[touched] + 0.1 * grad
        second = self.second[touched] = 0.98 * self.second[touched] + 0.02 * grad * grad
        first = first / (1 - 0.9**number)
        second = second / (1 - 0.98**number)
        self.rows[touched] -= self.rate * share * first / (np.sqrt(second) + 1e-8)


def share_of_rate(step, steps, warm):
    """Up while warming, then down along half a cosine."""
    return min(1, step / warm) * (0.5 * (1 + np.cos(np.pi * step / steps)) + 0.02)


class Contrast:
    """Pairs find each other among a batch, and stay near the teacher."""

    def __init__(self, rows, lists, targets, pairs, blocks, seed=1, rate=0.06, near=2.0, soft=0.5, drop=0.5):
        self.adam, self.lists, self.targets = Adam(rows, rate), lists, targets
        self.pairs, self.blocks = pairs, blocks  # blocks: source -> pair numbers sorted by service
        self.chance = np.random.default_rng(seed)
        self.near, self.soft, self.drop = near, soft, drop

    def run(self, steps, shares):
        names = [n for n in self.blocks if shares.get(n)]
        share = np.array([shares[n] for n in names])
        began, losses = time.time(), []
        for step in range(1, steps + 1):
            source = names[self.chance.choice(len(names), p=share / share.sum())]
            losses.append(self.step(step, share_of_rate(step, steps, 100), self.pick(source)))
            if step % 250 == 0:
                print(f"  contrast: {step}/{steps} loss {np.mean(losses[-250:]):.3f} {time.time() - began:.0f} s", flush=True)
        return self.adam.rows

    def pick(self, source):
        members = self.blocks[source]
        if source not in ("wordnet", "github") and self.chance.random() < 0.6:
            starts = self.chance.integers(0, len(members) - BLOCK, BATCH // BLOCK)
            return self.pairs[members[(starts[:, None] + np.arange(BLOCK)).ravel()]]
        return self.pairs[self.chance.choice(members, min(BATCH, len(members)), replace=False)]

    def step(self, number, rate, chosen):
        short, long = chosen[:, 0], chosen[:, 1]
        long_lists = [self.lists[i] for i in long]
        short_lists = [self.lists[i] for i in short]
        asked = [self.without_shared(s, l) for s, l in zip(short_lists, long_lists)]
        # Only the touched rows take part, so a step costs milliseconds.
        touched = np.unique(np.fromiter((p for x in short_lists + long_lists for p in x), np.int32))
        rows = self.adam.rows[touched]
        bags = [bag(lists, len(touched), touched) for lists in (asked, short_lists, long_lists)]
        a, a_size = units(bags[0] @ rows)
        whole, whole_size = units(bags[1] @ rows)
        b, b_size = units(bags[2] @ rows)
        ya, yb = self.targets[short], self.targets[long]
        same = (long[:, None] == long[None, :]) | (short[:, None] == short[None, :])
        mask = same & ~np.eye(len(chosen), dtype=bool)
        scores = np.where(mask, -1e4, a @ b.T / TEMPERATURE)
        teacher = np.where(mask, -1e4, ya @ yb.T / TEMPERATURE)
        eye = np.eye(len(chosen), dtype=np.float32)
        loss, slope = 0.0, np.zeros_like(scores)
        for s, t, back in ((scores, teacher, False), (scores.T, teacher.T, True)):
            wanted = (1 - self.soft) * eye + self.soft * softmax(t)
            given = softmax(s)
            loss -= float((wanted * np.log(given + 1e-12)).sum(1).mean())
            d = (given - wanted) / len(chosen)
            slope += d.T if back else d
        slope /= TEMPERATURE
        pull = self.near / len(chosen)
        grad = bags[0].T @ through_unit(slope @ b, a, a_size)
        grad += bags[1].T @ through_unit(-pull * ya, whole, whole_size)
        grad += bags[2].T @ through_unit(slope.T @ a - pull * yb, b, b_size)
        self.adam.step(touched, grad, number, rate)
        return loss

    def without_shared(self, short, long):
        """Sometimes hide the pieces both sides share, so that meaning and not spelling must connect them."""
        if not self.drop or self.chance.random() > 0.6:
            return short
        shared = set(long)
        kept = [p for p in short if p not in shared or self.chance.random() > self.drop]
        return kept if len(kept) > 1 else short


class Questions:
    """Questions of people find their tool among those of many servers, the tool's own siblings first of all."""

    def __init__(self, rows, asked, tools, answers, servers, seed=1, rate=0.03, drop=0.15, pull=1e-6):
        self.adam, self.start = Adam(rows, rate), rows
        self.asked, self.tools, self.answers, self.servers = asked, tools, answers, servers
        self.chance, self.drop, self.pull = np.random.default_rng(seed), drop, pull / float(np.abs(rows).mean()) ** 2
        self.of_tool = [[] for _ in tools]
        for number, gold in enumerate(answers):
            for tool in gold:
                self.of_tool[tool].append(number)

    def run(self, steps):
        began, losses = time.time(), []
        for step in range(1, steps + 1):
            losses.append(self.step(step, share_of_rate(step, steps, 50), *self.pick()))
            if step % 100 == 0:
                print(f"  questions: {step}/{steps} loss {np.mean(losses[-100:]):.3f} {time.time() - began:.0f} s", flush=True)
        return self.adam.rows

    def pick(self):
        """Whole servers, and for each of their tools one question."""
        tools = []
        for server in self.chance.permutation(len(self.servers)):
            tools.extend(t for t in self.servers[server] if self.of_tool[t])
            if len(tools) >= ASKED_AT_ONCE:
                break
        tools = tools[:ASKED_AT_ONCE]
        place = {tool: i for i, tool in enumerate(tools)}
        chosen, wanted = [], np.zeros((len(tools), len(tools)), np.float32)
        for i, tool in enumerate(tools):
            question = self.of_tool[tool][self.chance.integers(len(self.of_tool[tool]))]
            chosen.append(question)
            here = [place[t] for t in self.answers[question] if t in place]
            wanted[i, here] = 1 / len(here)
        return chosen, tools, wanted

    def step(self, number, share, chosen, tools, wanted):
        lists = [[self.some(self.asked[i]) for i in chosen], [self.some(self.tools[i]) for i in tools]]
        touched = np.unique(np.fromiter((p for side in lists for x in side for p in x), np.int32))
        rows = self.adam.rows[touched]
        bags = [bag(side, len(touched), touched) for side in lists]
        (a, a_size), (b, b_size) = (units(one @ rows) for one in bags)
        scores = a @ b.T / ASKED_TEMPERATURE
        back = wanted / np.maximum(wanted.sum(0, keepdims=True), 1e-9)
        there, here = softmax(scores), softmax(scores.T)
        loss = -float((wanted * np.log(there + 1e-12)).sum(1).mean() + 0.5 * (back.T * np.log(here + 1e-12)).sum(1).mean())
        # A question finds its tool; half as much, a tool its question.
        slope = (there - wanted + 0.5 * (here * back.sum(0)[:, None] - back.T).T) / (len(tools) * ASKED_TEMPERATURE)
        grad = bags[0].T @ through_unit(slope @ b, a, a_size) + bags[1].T @ through_unit(slope.T @ a, b, b_size)
        grad += 2 * self.pull * (rows - self.start[touched])
        self.adam.step(touched, grad, number, share)
        return loss

    def some(self, pieces):
        """Most of the pieces: no word alone shall connect the two."""
        kept = [p for p in pieces if self.chance.random() > self.drop]
        return kept or pieces


def units(x):
    size = np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-6)
    return x / size, size


def through_unit(slope, vector, size):
    return ((slope - vector * (slope * vector).sum(1, keepdims=True)) / size).astype(np.float32)


def softmax(x):
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)
