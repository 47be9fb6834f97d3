"""Make the search table: `python3 training/make_table.py` does everything, from download to evaluation.

The build folder keeps the virtual environment, the downloads and every slow step, so a second run is quick.
"""

import argparse
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
TABLE = ROOT / "crates/metamcp-search/src/search/meaning/table.bin"
FIXTURE = HERE / "fixtures/vectors.jsonl"
LARGEST_FILE = 6_000_000  # The table is most of what search adds to the binary.
BYTES_A_ROW = 15.2  # Scale, offset, and the mean length of a piece.
DIMS = 192  # 256 would not leave room for the whole vocabulary; 128 was not compared.
STEPS = 2000
ASKED_STEPS = 700  # Questions held back gain three points over 400 steps, the development sets half a point.
LONGEST_QUESTION, LONGEST_TOOL = 64, 96  # Pieces; what stands behind them is detail.
SHARES = {"botocore": 0.25, "google": 0.15, "github": 0.05, "openapi": 0.13, "fig": 0.1, "home": 0.08, "wordnet": 0.2, "asked": 0.12}


def main():
    options = arguments()
    options.build.mkdir(parents=True, exist_ok=True)
    enter_environment(options.build)
    if not options.evaluate_only:
        make(options)
    show(options)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "target/training", help="folder for everything made on the way")
    parser.add_argument("--out", type=pathlib.Path, default=TABLE)
    parser.add_argument("--fixture", type=pathlib.Path, default=FIXTURE)
    parser.add_argument("--data", type=pathlib.Path, help="folder of development sets; without it nothing is evaluated")
    parser.add_argument("--dims", type=int, default=DIMS)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--from", dest="start", type=pathlib.Path, help="a table to go on from with the questions alone: minutes instead of half an hour")
    parser.add_argument("--evaluate-only", action="store_true")
    options = parser.parse_args()
    options.build = options.build.resolve()
    return options


def enter_environment(build):
    """Run again inside a virtual environment with exactly the pinned packages."""
    python = build / "venv/bin/python"
    if pathlib.Path(sys.prefix) == build / "venv":
        return
    wanted = (HERE / "requirements.txt").read_text()
    stamp = build / "venv/installed.txt"
    if not stamp.exists() or stamp.read_text() != wanted:
        print("installing the pinned packages", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(build / "venv")], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", "-r", str(HERE / "requirements.txt")], check=True)
        stamp.write_text(wanted)
    os.execv(str(python), [str(python), *sys.argv])


def make(options):
    import evaluate
    import fit
    import pieces
    import questions
    import table

    names, rows = table.read(options.start) if options.start else taught(options)
    cutter = pieces.Pieces(names)

    own = questions.Questions(held_back=False)
    print(f"5/6 {len(own.asked)} questions, {len(own.tools)} tools", flush=True)
    asked = [cutter.of(q)[:LONGEST_QUESTION] for q in own.asked]
    offered = [cutter.of(evaluate.document(t))[:LONGEST_TOOL] for t in own.tools]
    rows = fit.Questions(rows, asked, offered, own.answers, own.servers).run(ASKED_STEPS)

    print("6/6 writing", flush=True)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    table.write(options.out, names, rows)
    size = options.out.stat().st_size
    if size > LARGEST_FILE:
        raise SystemExit(f"{options.out} has {size} bytes, over the limit of {LARGEST_FILE}; use fewer --dims")
    options.fixture.parent.mkdir(parents=True, exist_ok=True)
    table.write_fixture(options.fixture, *table.read(options.out))
    print(f"{options.out}: {size} bytes", flush=True)


def taught(options):
    """Pieces and rows as far as the teacher and the pairs bring them."""
    import numpy as np

    import fit
    import pieces
    import sources
    import teacher
    import vocabulary

    print("1/6 sources", flush=True)
    paths = sources.fetch_all(options.build / "sources")
    pairs, spread = sources.pairs(paths)
    texts = sorted({p[2] for p in pairs} | {p[3] for p in pairs})

    print(f"2/6 teacher vectors of {len(texts)} texts", flush=True)
    master = teacher.Teacher(paths["minilm"], options.build)
    found = master.of(texts)
    names = vocabulary.choose(
        teacher.read_vocabulary(paths["minilm"]),
        spread,
        texts,
        int(LARGEST_FILE / (options.dims + BYTES_A_ROW)),
    )
    single = master.of_names(names)

    print(f"3/6 ridge fit, {len(names)} pieces, {options.dims} dimensions", flush=True)
    cutter = pieces.Pieces(names)
    lists = [cutter.of(t)[: fit.LONGEST_BAG] for t in texts]
    directions = fit.project(found, options.dims)
    targets = found @ directions
    rows = fit.ridge(lists, targets, fit.weigh(single @ directions, lists))

    print("4/6 contrast between pairs", flush=True)
    place = {t: i for i, t in enumerate(texts)}
    pairs.sort(key=lambda p: (p[0], p[1], p[3]))  # Neighbours are of one service.
    numbers = np.array([(place[p[2]], place[p[3]]) for p in pairs])
    kinds = np.array([p[0] for p in pairs])
    blocks = {name: np.flatnonzero(kinds == name) for name in SHARES}
    targets = targets / np.linalg.norm(targets, axis=1, keepdims=True)
    return names, fit.Contrast(rows, lists, targets, numbers, blocks).run(options.steps, SHARES)


def show(options):
    """Evaluate what was written, as it will be read."""
    if options.data is None:
        print("no --data folder given, so nothing is evaluated")
        return
    import evaluate
    import pieces
    import questions
    import table

    names, rows = table.read(options.out)
    questions.write_set(options.build / "sets/own", held_back=True)
    own = {"own": evaluate.Set(options.build / "sets", "own")}
    evaluate.report(options.data, rows, pieces.Pieces(names), loaded=own)


if __name__ == "__main__":
    main()
