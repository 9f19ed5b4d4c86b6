#!/usr/bin/env python3
"""A real text corpus from the documentation a Debian machine has, with a tokenizer for it: no network.

    pip install tokenizers
    tools/make_text_corpus.py OUT [SNUG [CHARACTERS]]          e.g.  tools/make_text_corpus.py build/corpus build/snug

Reads licences, package documentation, manual pages and Python's library from the folders below, drops
paragraphs seen before (licences repeat), and writes into OUT: text.jsonl (one document a line, shuffled
with a fixed seed), tokenizer.json (byte-level BPE, GPT-2's shape and vocabulary size). With SNUG, the
program, also train.bin: the tokens, by `snug tokenize`; the first documents are encoded by the
`tokenizers` package too, and the ids must be the same. CHARACTERS: take so many of the shuffled documents at most.
What is not installed is left out; linux-doc-6.1, python3.11-doc, perl-doc, vim-runtime, cmake-data,
manpages-dev and git-doc together give some 17 million tokens.
"""
import array
import gzip
import hashlib
import json
import pathlib
import random
import re
import subprocess
import sys

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

# Folder, pattern of the names taken, most bytes taken in all.
SOURCES = [
    ("/usr/share/common-licenses", r".*", 2_000_000),
    ("/usr/share/doc/linux-doc-6.1/Documentation", r".*\.rst(\.gz)?$", 20_000_000),
    ("/usr/share/doc/python3.11/html/_sources", r".*\.rst\.txt$", 11_000_000),
    ("/usr/share/doc", r"(README|NEWS|FAQ|TODO|HISTORY|INSTALL|.*\.(txt|md|rst))(\..*)?(\.gz)?$", 7_000_000),
    ("/usr/share/cmake-3.25/Help", r".*\.rst$", 4_000_000),
    ("/usr/share/vim", r".*\.txt$", 6_000_000),
    ("/usr/share/perl", r".*\.pod$", 6_000_000),
    ("/usr/share/man/man2", r".*\.gz$", 4_000_000),
    ("/usr/share/man/man3", r".*\.gz$", 6_000_000),
    ("/usr/share/man/man5", r".*\.gz$", 2_000_000),
    ("/usr/share/man/man7", r".*\.gz$", 3_000_000),
    ("/usr/share/man/man8", r".*\.gz$", 2_000_000),
    ("/usr/share/man/man1", r"(?!gcloud).*\.gz$", 4_000_000),
    ("/usr/lib/python3.11", r".*\.py$", 4_000_000),
]
END, VOCAB, SEED, CHECKED = "<|endoftext|>", 50257, 42, 400


def read(path):
    raw = gzip.open(path, "rb").read() if path.suffix == ".gz" else path.read_bytes()
    text = raw.decode("utf-8")
    return from_roff(text) if "/man/man" in str(path) else text


def from_roff(text):
    """The words of a manual page: requests dropped or turned into line breaks, escapes resolved."""
    lines = []
    for line in text.splitlines():
        if line.startswith((".\\\"", "'\\\"", ".de", ".ds", ".if", ".ie", ".el", ".nr", ".TH", ".ad", ".nh", "..")):
            continue
        if match := re.match(r"[.'](\w+) ?(.*)", line):
            request, line = match[1], match[2].replace('"', "")
            if request in ("SH", "SS", "PP", "TP", "IP", "LP", "P", "HP", "Sh", "Ss", "Pp", "It"):
                lines.append("")
        line = re.sub(r"\\[fm](\[\w*\]|\(..|.)|\\s[-+]?\d|\\[ud]|\\[&/,|^%c]|\\\*\(..", "", line)
        line = re.sub(r"\\\((aq|cq|oq)", "'", re.sub(r"\\\((lq|rq|dq)", '"', line))
        lines.append(re.sub(r"\\\(em", "--", line).replace("\\-", "-").replace("\\e", "\\").replace("\\ ", " "))
    return "\n".join(lines)


def documents():
    seen = set()
    for folder, pattern, most in SOURCES:
        taken = 0
        for path in sorted(pathlib.Path(folder).rglob("*")):
            if taken >= most or not re.match(pattern, path.name) or path.is_symlink() or not path.is_file():
                continue
            try:
                text = read(path)
            except (UnicodeDecodeError, OSError, EOFError):
                continue
            kept = []
            for paragraph in re.split(r"\n\s*\n", text.replace("\r\n", "\n").replace(END, "")):
                key = hashlib.blake2b(" ".join(paragraph.split()).encode(), digest_size=8).digest()
                if paragraph.strip() and key not in seen:
                    seen.add(key)
                    kept.append(paragraph)
            text = "\n\n".join(kept)
            if len(text) > 200:
                taken += len(text)
                yield text
        print(f"{folder}: {taken:,} characters", flush=True)


def train(texts):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    t.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=VOCAB, special_tokens=[END], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    return t


def check(tokenizer, texts, path):
    """train.bin: 256 int32 of header, then uint16 ids; each document ends with END."""
    ids = array.array("H", path.read_bytes()[1024:])
    want = []
    for text in texts[:CHECKED]:
        want += tokenizer.encode(text).ids + [tokenizer.token_to_id(END)]
    if list(ids[: len(want)]) != want:
        first = next(i for i, (a, b) in enumerate(zip(ids, want)) if a != b)
        sys.exit(f"{path}: id {first} is {ids[first]}, the tokenizers package says {want[first]}")
    print(f"{path}: {len(ids):,} tokens; the first {len(want):,} equal the tokenizers package's")


def at_most(texts, n_characters):
    kept = []
    for text in texts:
        n_characters -= len(text)
        if n_characters < 0:
            break
        kept.append(text)
    return kept


def main(out, snug=None, characters=None):
    out = pathlib.Path(out)
    out.mkdir(parents=True, exist_ok=True)
    texts = list(documents())
    random.Random(SEED).shuffle(texts)
    if characters:
        texts = at_most(texts, int(characters))
    print(f"{len(texts):,} documents, {sum(map(len, texts)):,} characters")
    (out / "text.jsonl").write_text("".join(json.dumps({"text": t}, ensure_ascii=False) + "\n" for t in texts))
    tokenizer = train(texts)
    tokenizer.save(str(out / "tokenizer.json"), pretty=False)
    if snug:
        subprocess.run([snug, "tokenize", "configs/gpt2-124m.yaml", str(out / "text.jsonl"), "-o", str(out / "train.bin"),
                        f"tokenizer={out}/tokenizer.json", "device=cpu"], check=True)
        check(tokenizer, texts, out / "train.bin")


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3, 4):
        sys.exit(__doc__)
    main(*sys.argv[1:])
