#!/usr/bin/env python3
"""Writes src/data/regex_properties.def and src/data/word_characters.def: which characters the `tokenizers`
package's engines take for what, said in PCRE2's words.

A row of the first file is a property of Oniguruma, the same in PCRE2, and the characters by which the two differ (they
follow different versions of Unicode). Both engines are asked about every code point that is not in the middle of a
block where nothing changes. Needs `pip install tokenizers fonttools` and libpcre2-8 (Unicode 14).
"""
import ctypes
import pathlib

from fontTools.unicodedata import Scripts
from tokenizers import Regex, normalizers, pre_tokenizers

OUT = pathlib.Path(__file__).resolve().parent.parent / "src/data"
POINTS = [c for c in [*range(0x33480), *range(0xE0000, 0xE0200), 0xEFFFF, 0xF0000, 0xFFFFD, 0xFFFFE, 0x100000,
                      0x10FFFD, 0x10FFFF] if not 0xD800 <= c < 0xE000]
ALL = "".join(map(chr, POINTS))
MAX_DIFFERENCE = 120  # ranges; a property that differs by more is another one

CATEGORIES = """L Letter, Lu Uppercase_Letter, Ll Lowercase_Letter, Lt Titlecase_Letter, LC Cased_Letter,
Lm Modifier_Letter, Lo Other_Letter, M Mark Combining_Mark, Mn Nonspacing_Mark, Mc Spacing_Mark, Me Enclosing_Mark, N Number,
Nd Decimal_Number, Nl Letter_Number, No Other_Number, P Punctuation, Pc Connector_Punctuation, Pd Dash_Punctuation,
Ps Open_Punctuation, Pe Close_Punctuation, Pi Initial_Punctuation, Pf Final_Punctuation, Po Other_Punctuation,
S Symbol, Sm Math_Symbol, Sc Currency_Symbol, Sk Modifier_Symbol, So Other_Symbol, Z Separator,
Zs Space_Separator, Zl Line_Separator, Zp Paragraph_Separator, C Other, Cc Control, Cf Format, Cn Unassigned,
Co Private_Use"""
SPACE = r"\t-\r\x{85}\p{Z}"
POSIX = {
    "alpha": r"\p{Alphabetic}", "digit": r"\p{Nd}", "alnum": r"\p{Alphabetic}\p{Nd}", "upper": r"\p{Uppercase}",
    "lower": r"\p{Lowercase}", "space": SPACE, "blank": r"\t\p{Zs}", "cntrl": r"\p{Cc}", "ascii": r"\x{0}-\x{7F}",
    "xdigit": "0-9A-Fa-f", "word": r"\p{Alphabetic}\p{M}\p{Nd}\p{Pc}", "punct": r"\p{P}\p{S}",
    "graph": r"\p{L}\p{M}\p{N}\p{P}\p{S}\p{Cf}\p{Co}", "print": r"\p{L}\p{M}\p{N}\p{P}\p{S}\p{Zs}\p{Cf}\p{Co}",
}
BINARY = """Alphabetic Uppercase Lowercase White_Space Emoji Emoji_Presentation Emoji_Modifier Emoji_Modifier_Base
Emoji_Component Extended_Pictographic Ideographic Unified_Ideograph Math Hex_Digit ASCII_Hex_Digit Cased
Case_Ignorable Dash Diacritic Extender ID_Start ID_Continue XID_Start XID_Continue Join_Control Quotation_Mark
Radical Regional_Indicator Soft_Dotted Terminal_Punctuation Variation_Selector Default_Ignorable_Code_Point
Noncharacter_Code_Point Pattern_White_Space Pattern_Syntax Sentence_Terminal Grapheme_Base Grapheme_Extend""".split()

pcre2 = ctypes.CDLL("libpcre2-8.so.0")
for name in ("compile", "match_data_create", "get_ovector_pointer"):
    getattr(pcre2, f"pcre2_{name}_8").restype = ctypes.c_void_p
pcre2.pcre2_get_ovector_pointer_8.argtypes = [ctypes.c_void_p]
pcre2.pcre2_match_8.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_uint32,
                                ctypes.c_void_p, ctypes.c_void_p]
MATCH = ctypes.c_void_p(pcre2.pcre2_match_data_create_8(1, None))


def pcre2_set(body, options=""):
    """Characters of [body], or None when PCRE2 does not know it."""
    error, at = ctypes.c_int(), ctypes.c_size_t()
    pattern, text = f"{options}[{body}]+".encode(), ALL.encode()
    code = pcre2.pcre2_compile_8(pattern, ctypes.c_size_t(len(pattern)), 0x000A0000, ctypes.byref(error),
                                 ctypes.byref(at), None)  # UTF, UCP
    if not code:
        return None
    found, position = set(), 0
    while pcre2.pcre2_match_8(code, text, len(text), position, 0x40000000, MATCH, None) > 0:
        bounds = ctypes.cast(pcre2.pcre2_get_ovector_pointer_8(MATCH), ctypes.POINTER(ctypes.c_size_t))
        found.update(map(ord, text[bounds[0]:bounds[1]].decode()))
        position = bounds[1]
    return found


def onig_set(item, options=""):
    try:
        return set(map(ord, normalizers.Replace(Regex(f"{options}[^{item}]+"), "").normalize_str(ALL)))
    except Exception:  # no such property
        return None


def outside_set(complement):
    """The same outside of a class, where it is not always the same."""
    return set(map(ord, normalizers.Replace(Regex(complement + "+"), "").normalize_str(ALL)))


def ranges(points):
    """Ranges of POINTS; the gaps of POINTS do not end one."""
    out, index = [], {c: i for i, c in enumerate(POINTS)}
    for c in sorted(points):
        if out and index[out[-1][1]] + 1 == index[c]:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def class_text(points):
    return "".join(f"\\x{{{a:X}}}" + (f"-\\x{{{b:X}}}" if b > a else "") for a, b in ranges(points))


def is_caseless(item, wanted, body):
    """Whether case does not matter to it: the same characters in both engines under (?i)."""
    return onig_set(item, "(?i)") == wanted and pcre2_set(body, "(?i)") == pcre2_set(body)


def row(names, item, body, wanted=None):
    outside = wanted
    wanted = wanted or onig_set(item)
    theirs = pcre2_set(body) or set()
    if wanted is None or len(ranges(wanted ^ theirs)) > MAX_DIFFERENCE:
        print("left out:", *names)
        return []
    plain = sorted({n.lower().replace("_", "").replace(" ", "") for n in names})
    body = body if theirs else ""  # a script that PCRE2 does not know
    caseless = "YES" if outside or is_caseless(item, wanted, body + class_text(wanted - theirs)) else "NO"
    quoted = [s.replace("\\", "\\\\") for s in (body, class_text(wanted - theirs), class_text(theirs - wanted))]
    return ['PROPERTY("%s", "%s", "%s", "%s", %s)' % (n, *quoted, caseless) for n in plain]


def known(names):
    return [n for n in names if onig_set(rf"\p{{{n}}}") is not None]


def properties():
    rows = []
    for names in CATEGORIES.split(","):
        names = known(names.split())
        body = r"\p{Lu}\p{Ll}\p{Lt}" if names[0] == "LC" else rf"\p{{{names[0]}}}"
        rows += row(names, rf"\p{{{names[0]}}}", body)
    for name, body in POSIX.items():
        rows += row([":" + name], f"[:{name}:]", body)  # [[:punct:]] is not \p{Punct}
        rows += row([name], rf"\p{{{name}}}", r"\p{P}" if name == "punct" else body)
    for code, name in sorted(Scripts.NAMES.items()):
        names = known([code, name])
        rows += row(names, rf"\p{{{names[0]}}}", rf"\p{{sc:{name}}}") if names else []
    for name in BINARY:
        rows += row([name], rf"\p{{{name}}}", rf"\p{{{name}}}")
    rows += row(["any"], r"\p{Any}", r"\x{0}-\x{10FFFF}")
    rows += row(["assigned"], r"\p{Assigned}", r"\P{Cn}")
    rows += row(["#word"], r"\w", POSIX["word"], outside_set(r"\W"))
    rows += row(["#numeric"], "", r"\p{N}", numeric())
    return sorted(rows)


def numeric():
    """What the Digits pre-tokenizer cuts out."""
    pieces = pre_tokenizers.Digits(individual_digits=True).pre_tokenize_str("a".join(ALL))
    return {ord(p[0]) for p in pieces if len(p[0]) == 1 and p[0] != "a"}


def word_characters():
    """Characters before which an added token that is a single word does not stand alone."""
    from tokenizers import AddedToken, Tokenizer, models
    t = Tokenizer(models.BPE())
    t.add_tokens([AddedToken("#x#", single_word=True, normalized=False)])
    encoded = t.encode("".join("\n#x#" + c for c in ALL if c not in "#x"))
    alone = {o[1] for o in encoded.offsets}
    return {ord(c) for i, c in enumerate(c for c in ALL if c not in "#x") if 5 * i + 4 not in alone} | {ord("x")}


def main():
    (OUT / "regex_properties.def").write_text(
        "/* Made by tools/make_regex_properties.py. PROPERTY(name, the same in PCRE2, and these too, but not these,\n"
        " * whether (?i) changes nothing) of classes in Oniguruma; \":alpha\" is [:alpha:], \"#word\" \\w outside\n * of a class, \"#numeric\" what the Digits pre-tokenizer cuts out. */\n"
        + "\n".join(properties()) + "\n")
    rows = [f"RANGE(0x{a:X}, 0x{b:X})" for a, b in ranges(word_characters())]
    lines = [" ".join(rows[i:i + 5]) for i in range(0, len(rows), 5)]
    (OUT / "word_characters.def").write_text(
        "/* Made by tools/make_regex_properties.py: the characters of words, for added tokens that are single words. */\n"
        + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
