"""Fit the table: first a ridge fit of bags of pieces to the teacher, then contrast between pairs."""

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


class Contrast:
    """Adam over the touched rows: pairs find each other among a batch, and stay near the teacher."""

    def __init__(self, rows, lists, targets, pairs, blocks, seed=1, rate=0.06, near=2.0, soft=0.5, drop=0.5):
        self.rows, self.lists, self.targets = rows.copy(), lists, targets
        self.pairs, self.blocks = pairs, blocks  # blocks: source -> pair numbers sorted by service
        self.chance = np.random.default_rng(seed)
        self.first, self.second = np.zeros_like(rows), np.zeros_like(rows)
        self.rate, self.near, self.soft, self.drop = rate * float(np.abs(rows).mean()), near, soft, drop

    def run(self, steps, shares):
        names = [n for n in self.blocks if shares.get(n)]
        share = np.array([shares[n] for n in names])
        began, losses = time.time(), []
        for step in range(1, steps + 1):
            source = names[self.chance.choice(len(names), p=share / share.sum())]
            rate = self.rate * min(1, step / 100) * (0.5 * (1 + np.cos(np.pi * step / steps)) + 0.02)
            losses.append(self.step(step, rate, self.pick(source)))
            if step % 250 == 0:
                print(f"  contrast: {step}/{steps} loss {np.mean(losses[-250:]):.3f} {time.time() - began:.0f} s", flush=True)
        return self.rows

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
        rows = self.rows[touched]
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
        self.adam(touched, grad, number, rate)
        return loss

    def without_shared(self, short, long):
        """Sometimes hide the pieces both sides share, so that meaning and not spelling must connect them."""
        if not self.drop or self.chance.random() > 0.6:
            return short
        shared = set(long)
        kept = [p for p in short if p not in shared or self.chance.random() > self.drop]
        return kept if len(kept) > 1 else short

    def adam(self, touched, grad, number, rate):
        first = self.first[touched] = 0.9 * self.first[touched] + 0.1 * grad
        second = self.second[touched] = 0.98 * self.second[touched] + 0.02 * grad * grad
        first = first / (1 - 0.9**number)
        second = second / (1 - 0.98**number)
        self.rows[touched] -= rate * first / (np.sqrt(second) + 1e-8)


def units(x):
    size = np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-6)
    return x / size, size


def through_unit(slope, vector, size):
    return ((slope - vector * (slope * vector).sum(1, keepdims=True)) / size).astype(np.float32)


def softmax(x):
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)
