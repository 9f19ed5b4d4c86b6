"""The faults of tools/mutate.sh: small changes of one line each, drawn at random but always the same for a seed.

Comments, strings, preprocessor lines and declarations of tables are left alone: a fault there is no fault in what runs.
"""
import random
import re

# kind, pattern, replacements by what was found. Operators are taken with the blanks the formatter puts around them, so
# that pointers, casts and shifts are not mistaken for them.
RULES = [
    ("comparison", r" (<=|>=|<|>|==|!=) ", {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}),
    ("logic", r" (&&|\|\|) ", {"&&": "||", "||": "&&"}),
    ("arithmetic", r"(?<=[\w)\]]) ([-+*/%]) (?=[\w(])", {"+": "-", "-": "+", "*": "/", "/": "*", "%": "/"}),
    ("constant", r"(?<![\w.\[])(\d+)(?![\w.\]])", None),
    ("truth", r"\b(true|false)\b", {"true": "false", "false": "true"}),
    ("extreme", r"\b(MIN|MAX)(?=\()", {"MIN": "MAX", "MAX": "MIN"}),
    ("condition", r"\b(if|while) \((?=.*\)\s*\{?$)", None),
    ("dropped call", r"^\s+((?:TRY\()?[a-z]\w*\(.*\);)$", None),
    ("dropped assignment", r"^\s+([a-z][\w\[\].>-]* [-+|&]?= .*;)$", None),
]


def code_lines(text):
    """Lines of statements: (number, line), without comments, strings blanked out of the columns that may change."""
    in_comment, depth = False, 0
    for number, line in enumerate(text.split("\n"), 1):
        clean, i = [], 0
        while i < len(line):
            if in_comment:
                end = line.find("*/", i)
                stop = len(line) if end < 0 else end + 2
                clean.append("\0" * (stop - i))
                in_comment, i = end < 0, stop
            elif line.startswith("/*", i):
                in_comment = True
            elif line[i] in "\"'":
                stop = i + 1
                while stop < len(line) and line[stop] != line[i]:
                    stop += 2 if line[stop] == "\\" else 1
                clean.append("\0" * (min(stop + 1, len(line)) - i))
                i = stop + 1
            else:
                clean.append(line[i])
                i += 1
        clean = "".join(clean)[: len(line)]
        inside = depth > 0 and not clean.lstrip().startswith("#") and "BUG_ON(" not in clean
        depth += clean.count("{") - clean.count("}")
        if inside and not re.match(r"\s*(static )?const \w+.*\] = ", clean):
            yield number, line, clean


def faults_of(path):
    with open(path) as f:
        text = f.read()
    found = []
    for number, line, clean in code_lines(text):
        for kind, pattern, swaps in RULES:
            for m in re.finditer(pattern, clean):
                before, at = m.group(1), m.start(1)
                if kind == "constant":
                    after = str(int(before) + 1)
                elif kind == "condition":
                    at, before, after = m.end(), "", "!("  # closed below
                elif kind.startswith("dropped"):
                    before, after = line[m.start(1) : m.end(1)], ";"
                else:
                    after = swaps[before]
                found.append((path, number, at, kind, before, after))
    return found


def chosen(seed, count, paths):
    everything = [f for p in paths for f in faults_of(p)]
    random.Random(seed).shuffle(everything)
    return everything[:count]


def apply(fault):
    path, number, at, kind, before, after = fault
    with open(path) as f:
        lines = f.read().split("\n")
    line = lines[number - 1]
    if kind == "condition":  # if (X) -> if (!(X))
        close = line.rindex(")")
        line = line[:at] + "!(" + line[at:close] + ")" + line[close:]
    else:
        line = line[:at] + after + line[at + len(before) :]
    lines[number - 1] = line
    with open(path, "w") as f:
        f.write("\n".join(lines))


def words(fault):
    """A fault in a line: file, line, kind, before -> after."""
    path, line, _, kind, before, after = fault
    return f"{path}:{line}\t{kind}\t{before or 'X'} -> {after if kind != 'condition' else '!(X)'}"
