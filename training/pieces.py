"""Text into word pieces, the way the shipped reader does it (training/README.md has the rules in words)."""

import unicodedata

MAX_PIECES = 256  # A description longer than this says nothing new about its tool.
MAX_WORD_BYTES = 64  # Longer words are hashes and keys, not language.


def words(text, known):
    """The lower-case words of a text; `known` says whether a whole word is a piece."""
    out = []
    for run in runs(text):
        whole = run.lower()
        if whole in known:  # "GitHub" is one word to a reader, and the query says "github".
            out.append(whole)
        else:
            out.extend(part.lower() for part in camel_parts(run))
    return out


def runs(text):
    """Maximal runs of letters and digits; everything else separates."""
    return "".join(c if is_word_character(c) else " " for c in text).split()


def is_word_character(c):
    # Marks count, because Rust's char::is_alphanumeric counts them.
    return c.isalnum() or (c > "\x7f" and unicodedata.category(c) in ("Mn", "Mc"))


def camel_parts(run):
    """Split before an ASCII capital that starts a part: "listS3Buckets" -> list S3 Buckets."""
    parts, start = [], 0
    for i in range(1, len(run)):
        before, c, after = run[i - 1], run[i], run[i + 1 : i + 3]
        if not is_upper(c):
            continue
        if is_lower(before) or is_digit(before):
            cut = True
        else:
            plural = after[:1] == "s" and not is_lower(after[1:2])  # "URLs" stays one part.
            cut = is_upper(before) and is_lower(after[:1]) and not plural
        if cut:
            parts.append(run[start:i])
            start = i
    parts.append(run[start:])
    return parts


def is_upper(c):
    return "A" <= c <= "Z" and len(c) == 1


def is_lower(c):
    return "a" <= c <= "z" and len(c) == 1


def is_digit(c):
    return "0" <= c <= "9" and len(c) == 1


class Pieces:
    """Greedy longest-match word pieces over a fixed list."""

    def __init__(self, names):
        self.names = list(names)
        self.row = {name: i for i, name in enumerate(self.names)}
        self.cache = {}

    def of(self, text):
        """Row numbers of a text's pieces, in order, at most MAX_PIECES."""
        out = []
        for word in words(text, self.row):
            rows = self.cache.get(word)
            if rows is None:
                rows = self.cache[word] = self.of_word(word)
            out.extend(rows)
            if len(out) >= MAX_PIECES:
                break
        return out[:MAX_PIECES]

    def of_word(self, word):
        if len(word.encode()) > MAX_WORD_BYTES:
            return []
        out, start = [], 0
        while start < len(word):
            prefix = "##" if start else ""
            for end in range(len(word), start, -1):
                row = self.row.get(prefix + word[start:end])
                if row is not None:
                    out.append(row)
                    start = end
                    break
            else:
                return []  # A word we know only in part would point somewhere wrong.
        return out


def useful(name):
    """Whether a piece of the teacher's vocabulary earns its row: ASCII letters and digits only."""
    body = name[2:] if name.startswith("##") else name
    return body.isascii() and body.isalnum() and body == body.lower()
