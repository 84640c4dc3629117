#!/usr/bin/env python3
"""Makes a small tekken.json of texts in several scripts, and the tokens that mistral-common gives for other texts.

    python3 model/tests/data/tekken/tekken.py

It needs mistral-common from PyPI, and writes tekken.json and ids.json next to itself.
"""
import base64, collections, json, pathlib

import mistral_common, regex
from mistral_common.tokens.tokenizers.tekken import Tekkenizer

HERE = pathlib.Path(__file__).parent
PATTERN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TRAINED = """The borrow checker rejects a program in which a reference outlives its value. The reference is checked.
fn main() { let mut total = 0; for i in 0..10 { total += i; } println!("{total}"); }
Der Ausleihprüfer lehnt Programme ab, in denen eine Referenz länger lebt als ihr Wert. Die Prüfung ist streng.
Le vérificateur refuse un programme où une référence survit à sa valeur. La référence est vérifiée.
Проверка заимствований отклоняет программу, в которой ссылка живёт дольше значения. Ссылка проверена.
借用检查器拒绝引用比其值存活更久的程序。引用已检查。借用检查器。
参照が値より長く生きるプログラムは拒否されます。参照は検査されます。
يرفض المدقق البرنامج الذي يعيش فيه المرجع أطول من قيمته. المرجع.
उधार जाँचकर्ता उस प्रोग्राम को अस्वीकार करता है। उधार जाँचकर्ता।
        indented
        indented\n\n\n    aaaa aaaaaaaa ---- ======== 1234567890 1234
"""
TEXTS = [
    "",
    " ",
    "   ",
    "a",
    "The borrow checker rejects the reference.",
    "the  reference\n\n\n  outlives\t\tits value  ",
    "aaaaaaaaaaaaaaaaaaaaaaa aaaaaaa aaa aa",
    "fn checker() -> u32 { 1234567890 + 0x7f } // ---- ====",
    "Prüfung länger, où référence à sa valeur: Ä Ö Ü ß",
    "Проверка ссылки. ссылка ССЫЛКА",
    "借用检查器检查引用。",
    "参照は値より長く。カタカナ",
    "المرجع يعيش أطول",
    "उधार जाँचकर्ता प्रोग्राम",
    "emoji 🦀🦀 and 👩\u200d💻, e\u0301 and \ufeff",
    "HTTPServer XMLHttpRequest camelCase SCREAMING_CASE",
    "don't I'll we're it's",
    "[INST] text [/INST] <s> </s>",
    "a/b//c\r\nd\re \u00a0x\u3000y",
    "\x00\x01\x7f",
]


def trained(count):
    """The tokens in the order of their ranks: all bytes, and then the most frequent pairs."""
    pieces = collections.Counter(tuple(bytes([b]) for b in piece.encode()) for piece in regex.findall(PATTERN, TRAINED))
    ranks = [bytes([b]) for b in range(256)]
    while len(ranks) < count:
        pairs = collections.Counter()
        for piece, times in pieces.items():
            for pair in zip(piece, piece[1:]):
                pairs[pair] += times
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        ranks.append(best[0] + best[1])
        merged = collections.Counter()
        for piece, times in pieces.items():
            new, at = [], 0
            while at < len(piece):
                pair = piece[at:at + 2]
                new.append(pair[0] + pair[1] if pair == best else piece[at])
                at += 2 if pair == best else 1
            merged[tuple(new)] += times
        pieces = merged
    return ranks


def text(token):
    try:
        return token.decode()
    except UnicodeDecodeError:
        return None


def main():
    ranks = trained(640)
    vocab = [
        {"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": text(token)}
        for rank, token in enumerate(ranks)
    ]
    config = {
        "pattern": PATTERN,
        "num_vocab_tokens": len(vocab),
        # The last tokens are not used.
        "default_vocab_size": 24 + len(vocab) - 40,
        "default_num_special_tokens": 24,
        "version": "v3",
    }
    path = HERE / "tekken.json"
    rows = ",\n".join(json.dumps(token, ensure_ascii=True) for token in vocab)
    path.write_text(f'{{"config": {json.dumps(config)}, "vocab": [\n{rows}\n]}}\n')
    tokenizer = Tekkenizer.from_file(path)
    cases = [{"text": text, "ids": tokenizer.encode(text, bos=True, eos=False)} for text in TEXTS]
    for case in cases:
        assert tokenizer.decode(case["ids"]) == case["text"], case
    rows = ",\n".join(json.dumps(case, ensure_ascii=True) for case in cases)
    (HERE / "ids.json").write_text(f'{{"version": "{mistral_common.__version__}", "cases": [\n{rows}\n]}}\n')


main()
