#!/usr/bin/env python3
"""Makes tests/golden/tokenizer/: small BPE tokenizers, byte-level ones in the shapes of GPT-2, Llama 3
and Qwen 2 and others in those of Llama 2, Mistral and Gemma, and what the `tokenizers` package
encodes tricky strings to with each.

    pip install tokenizers
    tools/make_tokenizer_golden.py

The text they are trained on is generated here (syllables, with a fixed seed): no third-party text.
Running it again gives the same files.
"""
import json
import pathlib
import random

from tokenizers import AddedToken, Regex, Tokenizer
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden" / "tokenizer"

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
          r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")


def training_text():
    rng = random.Random(20240520)
    onsets = ["b", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "t", "th", "st", "br", "h", "w"]
    vowels = ["a", "e", "i", "o", "u", "ea", "ou"]
    ends = ["", "", "n", "r", "s", "t", "ll", "ng"]
    words = ["".join(rng.choice(onsets) + rng.choice(vowels) + rng.choice(ends)
                     for _ in range(rng.choice([1, 1, 2, 2, 3]))) for _ in range(400)]
    words += ["été", "naïve", "größe", "привет", "мир", "日本", "語", "مرحبا", "I'm", "we'll", "don't",
              "they've", "it's", "you're", "he'd", "12", "345", "2024", "::", "->", "==", "😀", "👍🏽"]
    lines = []
    for _ in range(3000):
        line = " ".join(rng.choice(words) for _ in range(rng.randint(3, 14)))
        line += rng.choice([".", "!", "?", ";", "...", "\n", "\n\n", "  ", "\t"])
        lines.append(line.capitalize() if rng.random() < 0.5 else line)
    return lines


def train(normalizer, pre_tokenizer, special, n_vocab, keep_out):
    tokenizer = Tokenizer(models.BPE())
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=n_vocab, special_tokens=special if not keep_out else [],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(training_text(), trainer)
    if keep_out:
        tokenizer.add_special_tokens(special)
    return tokenizer


def split_then_bytes(regex):
    return pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(regex), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def gpt2():
    t = train(None, pre_tokenizers.ByteLevel(add_prefix_space=False), ["<|endoftext|>"], 700, False)
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    t.add_tokens([AddedToken("<tool>", lstrip=True, rstrip=True, normalized=False),
                  AddedToken("whole", single_word=True, normalized=True),
                  AddedToken("<tool>er", normalized=False)])
    return t


def llama3():
    t = train(None, split_then_bytes(LLAMA3), ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"],
              650, True)
    t.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<|begin_of_text|> $A", pair=None, special_tokens=[
            ("<|begin_of_text|>", t.token_to_id("<|begin_of_text|>"))])])
    return t


def qwen2():
    t = train(normalizers.NFC(), split_then_bytes(QWEN2), ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
              650, True)
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    t.add_tokens([AddedToken("cafe\u0301", normalized=True)])
    return t


def prefix_space():
    """GPT-2 with add_prefix_space, single digits, and merges spelled as arrays by the package."""
    pre = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                   pre_tokenizers.ByteLevel(add_prefix_space=True)])
    return train(None, pre, ["<|endoftext|>"], 500, False)


MARK = "\u2581"
BYTES = [f"<0x{b:02X}>" for b in range(256)]


def train_marked(first_tokens, with_bytes, n_vocab):
    """Of characters, with a mark for a space. Added tokens are the first ones only."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=with_bytes))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.BpeTrainer(
        vocab_size=n_vocab, special_tokens=first_tokens + (BYTES if with_bytes else []), show_progress=False)
    tokenizer.train_from_iterator(training_text(), trainer)
    data = json.loads(tokenizer.to_str())
    data["added_tokens"] = [a for a in data["added_tokens"] if a["content"] in first_tokens]
    return Tokenizer.from_str(json.dumps(data))


def bos_template(t):
    return processors.TemplateProcessing(single="<s> $A", pair=None, special_tokens=[("<s>", t.token_to_id("<s>"))])


def unmark(*last):
    return decoders.Sequence([decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse(), *last])


def llama2():
    t = train_marked(["<unk>", "<s>", "</s>"], True, 900)
    t.normalizer = normalizers.Sequence([normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)])
    t.pre_tokenizer = None
    t.post_processor = bos_template(t)
    t.decoder = unmark(decoders.Strip(" ", 1, 0))
    t.add_tokens([AddedToken("<tool>", lstrip=True, rstrip=True, normalized=False),
                  AddedToken("whole", single_word=True, normalized=True)])
    return t


def mistral():
    t = train_marked(["<unk>", "<s>", "</s>"], True, 900)
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    t.post_processor = bos_template(t)
    t.decoder = unmark(decoders.Strip(" ", 1, 0))
    t.add_tokens([AddedToken("<tool>", normalized=False), AddedToken("whole", single_word=True, normalized=True)])
    return t


def gemma():
    t = train_marked(["<pad>", "<eos>", "<bos>", "<unk>"], True, 900)
    t.normalizer = normalizers.Replace(" ", MARK)
    t.pre_tokenizer = pre_tokenizers.Split(" ", behavior="merged_with_previous")
    t.decoder = unmark()
    t.add_tokens([AddedToken(2 * MARK, normalized=False), AddedToken("\n\n", normalized=False)])
    return t


def words():
    """Without bytes: what has no token is unknown. Pieces begin at spaces, digits stand alone."""
    t = train_marked(["<unk>", "<s>", "</s>"], False, 500)
    t.normalizer = normalizers.NFKC()
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                               pre_tokenizers.Metaspace(prepend_scheme="always", split=True)])
    t.decoder = decoders.Metaspace(prepend_scheme="always")
    return t


def added():
    """White space that is a token, next to tokens that take it away; words and digits of newer Unicode."""
    pre = pre_tokenizers.Sequence([pre_tokenizers.Digits(), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    t = train(None, pre, ["<|endoftext|>"], 300, False)
    t.add_tokens([AddedToken("<tool>", lstrip=True, rstrip=True, normalized=False),
                  AddedToken("<right>", rstrip=True, normalized=False), AddedToken("\n\n", normalized=False),
                  AddedToken("  ", normalized=False), AddedToken("whole", single_word=True, normalized=True)])
    return t


def added_texts():
    around = ["\u200d", "\u200c", "\u24b6", "\u00b2", "\u0345", "\u1c89", "\u2118", "\U00010d40", "\U00016ea0", "\u203f", "\u2160"]
    words = [a + "whole" + b for c in around for a, b in ((c, ""), ("", c), (c, c))]
    digits = ["\U00010d40\U00010d411", "a\U00011de0b", "1\U00016ff4\u00b2x\u0664", "\U0001e5f12"]
    spaces = ["<right>\n\nx", "<right> \n\n y", "<right>\n\n  \n\n", "<tool>\n\n", "x \n\n<tool>  y", "<right>  <tool>  <right>\n\n ",
              "<right>    ", "\n\n<tool>\n\n", "<right>\n\n<right>", "<right> \n  x  <tool>"]
    return words + digits + spaces


def texts():
    rng = random.Random(7)
    fixed = [
        "", " ", "  ", "\n", "\n\n\n", " \n", "\t\t x", "a", "Hello world", "hello   world",
        "  leading and trailing  ", "line one\nline two\r\nline three\n\n\nend", "tabs\tand\t\ttabs",
        "x \n y", "x  \n\n  y", "trailing newline\n", "a\u00a0b\u2003c\u3000d", "a\u0085b", "a\u2028b\u2029c",
        "don't we'll they've I'm it's you're he'd", "DON'T WE'LL THEY'VE I'M IT'S YOU'RE HE'D", "'s't're",
        "\u017fs '\u017f", "it''s", "0 1 12 123 1234 12345 1234567", "3.14159, -2e10; 1,000,000", "x1y22z333",
        "½ ² ³ Ⅳ ٣٤٥ 一二三", "été naïve größe", "e\u0301te\u0301 nai\u0308ve", "cafe\u0301 café", "привет мир",
        "日本語テキスト", "مرحبا بالعالم", "שלום", "नमस्ते", "한국어 한국어", "\u1112\u1161\u11ab", "😀👍🏽👨‍👩‍👧‍👦🇫🇷",
        "a😀b 😀 c", "!!! ??? ... --- === ->", "(foo) [bar] {baz} <qux>", "snake_case camelCase kebab-case",
        "http://example.org/path?q=1&r=2#frag", "def f(x):\n    return x + 1\n\n\nclass A:\n\tpass\n",
        "<|endoftext|>", "a<|endoftext|>b", " <|endoftext|> ", "<|endoftext|><|endoftext|>", "<|endoftext",
        "<|begin_of_text|>x<|eot_id|>", "<|im_start|>user\nhi<|im_end|>\n", "go <tool> now", "<tool>er", "x<tool>  y",
        "whole", "a whole b", "wholesale", "awhole", "whole_", "whole, whole!", "unwhole whole",
        "\u0001a\u0002\u001f", "\ufeffbom", "zero\u200bwidth", "a \u180e\u180e b  \u180e's", "\u202eright to left", "\ufffd\ufffe\U0010ffff",
        "\u2581marks\u2581", " \u2581 x\u2581\u2581y", "<0x41><0x0A>", "<s>after</s> that", "x<s> y", "\u2581",
        "a" * 99, "ab " * 30, " " * 100 + "x", "\n" * 50, "th" * 60, "\u00c5\u212b\u0041\u030a", "ﬁ ﬂ",
    ]
    alphabet = ["a", "th", "e", "s", " ", "  ", "\n", "\t", "'", "'s", "'LL", "1", "23", "é", "e\u0301", "д", "日",
                "😀", "<|endoftext|>", "<tool>", "!", ".", "\u00a0", "\u3000", "\r\n", "_", "ng", "ou", "K", "\u0301"]
    fixed += ["".join(rng.choice(alphabet) for _ in range(rng.randint(1, 40))) for _ in range(50)]
    return fixed


PATTERNS = [
    # of models
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
    r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+|\s+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*",
    r"\d{1,3}(?=(?:\d{3})*\b)", r" ?[^(\s|[.,!?…。，、।۔،])]+", r"[一-龥ぁ-ゟ゠-ヿ]+",
    # anchors, dots, options
    r"\b", r"\B", "^", "$", ".$", "^.", r"\A.", r".\z", r".\Z", r"\G.", r"a\Kb", "(?m:a.*)", "a.*", r"\N+", r"\O{2}", r"\R",
    "(?i:ab)c", "a(?i)b|c", "(?i:a(?-i:b))", "(?x) a b # c", "(?#c)a", r"(?i)[a-z]+", r"(?i)\w+", "(?i:k)",
    # sets
    r"\w+", r"\W+", r"\d+", r"\D+", r"\s+", r"\S+", r"\h+", r"\H+", r"[\h]", r"[\w]+", r"[\S]+", r"[^\S\n]+", r"[\d\s]+",
    r"\p{^L}+", r"\P{^L}+", r"[^\P{L}]+", r"\p{Punct}+", r"\p{C}", r"[^\p{Cn}a]+", r"\p{Greek}+", r"\p{Latin}+", r"\p{Common}+",
    r"\p{Emoji}", r"\p{uppercase letter}\p{Ll}*", r"\p{Word}+", r"\p{Kawi}",
    *[f"[[:{name}:]]+" for name in "alpha digit alnum upper lower space blank cntrl punct graph print xdigit word ascii".split()],
    "[[:^alpha:]]+", "[a-c&&b-d]", r"[a-c&&[^b]&&\w]", "[^a-c&&b]", "[^[^a]]", "[a[bc]]+", "[a[^b]]+", "[-a]", "[a-]",
    r"[a\-c]", "[a-c-e]+", "[]a]", "[^]a]", r"[\b]", "[é-ÿ]+", "[+--]", "[a&b]",
    # quantifiers and groups
    r"\p{N}{1,3}+", "a{2}?", "a{1,2}?", "a{,2}", "a{2,}", "a{1,2}{2}", "a**", "a{", "a{,}", "a++b", "a?+a", "(?:a|b)*+c", "(?>a+)b",
    "(?<=a)b", "(?<!a)b", "(?<=a|bc)d", "(?<n>a)b", "(?'n'a)b", "(a|b)+", "()", "a|",
    # characters
    r"\x61+", r"\x{61}", r"\u0061", r"\141", r"\v", r"\e", r"\j", r"\é",
]
PATTERN_TEXTS = [
    "", "aab abc\nABC\n", "don't 1234567 x12\r\n", "²½ Ⅳ ٣٤ x²", "日本語 ひらカナ abc한д", "ß ſ K ıİ ǅ ª ʰ é\u0301", "a\u200db\u24b6 \u180e \u00a0\u2028\u0085",
    "😀👍🏽$€+^~|`<> _-,.]&{,}", "\u1c89\ua7cb \U00010d40\U00016d70 \U0002ebf0\U00031350 \U00011f04", "\x00\x01\x08\x0b\x1b\x7f\ufeff\ue000", "aaaaa{,}a{ jb bcd ad cad fF09",
]


def pattern_cases():
    """For each pattern and text the lengths in bytes of the pieces."""
    cases = {}
    for pattern in PATTERNS:
        split = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
        cases[pattern] = [[len(p.encode()) for p, _ in split.pre_tokenize_str(text)] for text in PATTERN_TEXTS]
    lines = ",\n".join(json.dumps(k) + ":" + json.dumps(v, separators=(",", ":")) for k, v in cases.items())
    return f'{{"texts":{json.dumps(PATTERN_TEXTS)},\n"patterns":{{\n{lines}}}}}\n'


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "patterns.json").write_text(pattern_cases())
    cases = {}
    for make in (gpt2, llama3, qwen2, prefix_space, llama2, mistral, gemma, words, added):
        name = make.__name__
        data = json.loads(make().to_str())
        if name == "llama3":
            data["model"]["ignore_merges"] = True
            drop = data["model"]["merges"][-40:]  # tokens that only ignore_merges can reach
            data["model"]["merges"] = [m for m in data["model"]["merges"] if m not in drop]
        if name == "gpt2":  # the old spelling
            data["model"]["merges"] = [m if isinstance(m, str) else " ".join(m)
                                       for m in data["model"]["merges"]]
        (OUT / f"{name}.json").write_text(
            json.dumps(data, ensure_ascii=False, separators=(",", ":")) + "\n")
        t = Tokenizer.from_str((OUT / f"{name}.json").read_text())
        cases[name] = [{"text": s, "ids": t.encode(s, add_special_tokens=False).ids,
                        "template": t.encode(s, add_special_tokens=True).ids}
                       for s in texts() + (added_texts() if name == "added" else [])]
        if name in ("llama2", "mistral", "gemma", "words"):
            for case in cases[name]:
                decoded = t.decode(case["ids"], skip_special_tokens=False)
                case["decoded"] = decoded if decoded != case["text"] else True  # the text itself
        for case in cases[name][8:]:  # a few are enough to see what the template adds
            del case["template"]
    lines = ",\n".join(f'"{k}":[\n' + ",\n".join(json.dumps(c, separators=(",", ":")) for c in v) + "]"
                       for k, v in cases.items())
    (OUT / "cases.json").write_text("{" + lines + "}\n")


if __name__ == "__main__":
    main()
