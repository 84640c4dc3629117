"""5,000 strings that tokenizers disagree on, the same in every run: scripts, code, emoji, white space, typed tokens."""

import json
import random
import sys

# Beginnings and ends of ranges of letters in 32 scripts.
SCRIPTS = {
    "latin": (0x61, 0x7A), "latin-1": (0xC0, 0xFF), "latin-a": (0x100, 0x17F), "greek": (0x3B1, 0x3C9),
    "cyrillic": (0x430, 0x44F), "armenian": (0x561, 0x586), "hebrew": (0x5D0, 0x5EA), "arabic": (0x627, 0x64A),
    "syriac": (0x710, 0x72F), "thaana": (0x780, 0x7A5), "devanagari": (0x904, 0x94D), "bengali": (0x985, 0x9B9),
    "gurmukhi": (0xA05, 0xA39), "gujarati": (0xA85, 0xAB9), "oriya": (0xB05, 0xB39), "tamil": (0xB85, 0xBB9),
    "telugu": (0xC05, 0xC39), "kannada": (0xC85, 0xCB9), "malayalam": (0xD05, 0xD39), "sinhala": (0xD85, 0xDC6),
    "thai": (0xE01, 0xE2E), "lao": (0xE81, 0xEAE), "tibetan": (0xF40, 0xF69), "myanmar": (0x1000, 0x1021),
    "georgian": (0x10D0, 0x10F0), "hangul": (0xAC00, 0xD7A3), "ethiopic": (0x1200, 0x1248),
    "cherokee": (0x13A0, 0x13F4), "khmer": (0x1780, 0x17B3), "mongolian": (0x1820, 0x1842),
    "hiragana": (0x3041, 0x3096), "katakana": (0x30A1, 0x30FA), "han": (0x4E00, 0x9FA5), "gothic": (0x10330, 0x1034A),
}
MARKS = ["\u0301", "\u0308", "\u093f", "\u0e49", "\u200d", "\u200c", "\ufe0f", "\u064e"]
EMOJI = [
    "\U0001f980", "\U0001f469\u200d\U0001f4bb", "\U0001f1e9\U0001f1ea", "\U0001f44d\U0001f3fd", "\u2764\ufe0f",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466", "#\ufe0f\u20e3", "\U0001f3f4\U000e0067\U000e0062\U000e007f",
]
SPACES = [" ", "  ", "   ", "       ", "\t", "\t\t", "\n", "\n\n", "\n\n\n\n", "\r\n", "\r", "\u00a0", "\u3000", "\u2009", " \n ", "\u2581", "\u2581\u2581", "\u0085", "\v"]
TOKENS = [
    "<s>", "</s>", "<unk>", "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|eot_id|>", "<|begin_of_text|>", "[INST]",
    "[/INST]", "<start_of_turn>", "<end_of_turn>", "<bos>", "<pad>", "<0x0A>", "<0xE2>", "<|user|>", "<|assistant|>",
    "<|end|>", "<fim_prefix>", "<mask>", "<custom>", "<tool>",
]
WORDS = "the of and language model Tokenizer don't I'LL we've Straße naïve ﬁne ＦＵＬＬ ½ ① Ⅷ ²³ İstanbul ſet Ǆ ΐ e\u0301 Å".split()
CODE = [
    "fn main() {\n    println!(\"{}\", x);\n}\n", "for (int i = 0; i < n; ++i) { a[i] += b[i]; }", "def f(x):\n\treturn x**2  # ok\n",
    "SELECT * FROM t WHERE a='b';", "<div class=\"a\">&nbsp;</div>", "x = {'a': [1, 2, 3], \"b\": None}\n\n\n", "#include <stdio.h>",
    "a->b::c<d>()?;", "0xDEADBEEF 1e-10 3.14159 1,000,000", "https://example.org/a?b=c&d=%20e#f", "C:\\dir\\file.txt", "if (!a && b || ~c ^ d) {}",
]
ODD = ["\x00", "\x01", "\x7f", "\ufeff", "\ufffd", "\ue000", "\U0010ffff", "\u202e", "\u00ad", "...", "!!!", "----", "''", "``", "#####", "====="]


def word(r):
    kind = r.randrange(10)
    if kind < 4:
        low, high = SCRIPTS[r.choice(sorted(SCRIPTS))]
        letters = [chr(r.randint(low, high)) for _ in range(r.randint(1, 9))]
        if r.random() < 0.15:
            letters.insert(r.randrange(len(letters) + 1), r.choice(MARKS))
        text = "".join(letters)
        return text.title() if r.random() < 0.2 else text
    if kind < 6:
        return r.choice(WORDS)
    if kind == 6:
        return str(r.randrange(10 ** r.randint(1, 12)))
    if kind == 7:
        return r.choice(EMOJI)
    if kind == 8:
        return r.choice(ODD)
    return r.choice(TOKENS)


def strings(count=5000):
    """The strings: each item of each list alone and between letters, then random sequences."""
    r = random.Random(20261123)
    singles = [""] + WORDS + CODE + EMOJI + SPACES + TOKENS + ODD + MARKS
    out = singles + [f"a{x}b" for x in singles] + [f" {x} " for x in singles] + [x * 3 for x in singles]
    for low, high in SCRIPTS.values():
        out.append("".join(chr(c) for c in range(low, min(high, low + 40) + 1)))
    out += [" " * n for n in range(1, 40)] + ["a" * n for n in (10, 50, 200)] + ["\n" * n for n in range(1, 20)]
    while len(out) < count:
        parts = []
        for _ in range(r.randint(1, 12)):
            parts.append(r.choice(CODE) if r.random() < 0.1 else word(r))
            parts.append(" " if r.random() < 0.6 else r.choice(SPACES + ["", ""]))
        out.append("".join(parts))
    return out[:count]


if __name__ == "__main__":
    json.dump(strings(), sys.stdout, ensure_ascii=False)
