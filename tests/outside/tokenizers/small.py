"""Small vocabularies of our own making, and what their makers' packages make of strings: tests/data/sentencepiece.json.

    pip install -r packages.txt && python3 small.py > ../../data/sentencepiece.json

`sentencepiece` trains them on text of this repository and judges what a GGUF file of the same tables must give;
`tokenizers` judges a `tokenizer.json` of the same tables.
"""

import base64
import io
import json
import pathlib
import sys
import tempfile

import sentencepiece
import tokenizers
from sentencepiece import sentencepiece_model_pb2 as pb
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers

from strings import SCRIPTS, strings

ROOT = pathlib.Path(__file__).parents[3]
RULES = "41 42\t58\nFF21\t41\n2460\t31\nFB01\t66 20 69\n5A\t\n"
COMMON = dict(control_symbols=["<tool>"], user_defined_symbols=["<custom>"], character_coverage=0.98, hard_vocab_limit=False)
# Llama's, Gemma's, T5's with bytes, and one with the unknown token.
MODELS = {
    "bpe": dict(model_type="bpe", byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False, allow_whitespace_only_pieces=True),
    "bpe-no-prefix": dict(model_type="bpe", byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False, add_dummy_prefix=False),
    "unigram": dict(model_type="unigram", byte_fallback=True, normalization_rule_tsv="RULES"),
    "unigram-unknown": dict(model_type="unigram", normalization_rule_name="identity", remove_extra_whitespaces=False),
}


def text():
    """What the vocabularies are trained on."""
    files = ["README.md", "ARCHITECTURE.md", "STYLE.md", "CONTRIBUTING.md", "xtask/src/outside.rs"]
    lines = [line for name in files for line in (ROOT / name).read_text("utf-8").splitlines() if line.strip()]
    return lines + ["".join(map(chr, range(low, low + 12))) for low, _ in list(SCRIPTS.values())[:6]] + ["        a    b  c"] * 30


def train(options):
    """The bytes of a model."""
    out = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder:
        rules = pathlib.Path(folder, "rules.tsv")
        rules.write_text(RULES, "utf-8")
        options = {key: str(rules) if value == "RULES" else value for key, value in options.items()}
        size = 520 if options.get("byte_fallback") else 300
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(text()), model_writer=out, vocab_size=size,
            num_threads=1, minloglevel=2, **COMMON, **options)
    return out.getvalue()


def tables(model):
    """The tables of a GGUF file, as its converter writes them."""
    proto = pb.ModelProto()
    proto.ParseFromString(model)
    return dict(
        model="llama" if proto.trainer_spec.model_type == 2 else "t5",
        tokens=[piece.piece for piece in proto.pieces], scores=[piece.score for piece in proto.pieces],
        types=[piece.type for piece in proto.pieces], unknown=proto.trainer_spec.unk_id,
        add_space_prefix=proto.normalizer_spec.add_dummy_prefix,
        remove_extra_whitespaces=proto.normalizer_spec.remove_extra_whitespaces,
        charsmap=base64.b64encode(proto.normalizer_spec.precompiled_charsmap).decode(),
    )


def merges(t):
    """The merges of a vocabulary of scores, as transformers derives them (`generate_merges`)."""
    ids = {token: i for i, token in enumerate(t["tokens"])}
    out = []
    for token, score, kind in zip(t["tokens"], t["scores"], t["types"]):
        cuts = [(token[:i], token[i:]) for i in range(1, len(token))] if kind == 1 else []
        local = sorted(((a, b) for a, b in cuts if a in ids and b in ids), key=lambda cut: (ids[cut[0]], ids[cut[1]]))
        out += [(a, b, score) for a, b in local]
    return [(a, b) for a, b, _ in sorted(out, key=lambda merge: merge[2], reverse=True)]


def tokenizer_json(t):
    """A `tokenizer.json` of the same tables, as the converters of transformers write it."""
    if t["model"] == "llama":
        vocab = {token: i for i, token in enumerate(t["tokens"])}
        fast = tokenizers.Tokenizer(models.BPE(vocab, merges(t), unk_token="<unk>", fuse_unk=True, byte_fallback=True))
        steps = [normalizers.Prepend("\u2581")] if t["add_space_prefix"] else []
        fast.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", "\u2581")])
        strip = [decoders.Strip(" ", 1, 0)] if t["add_space_prefix"] else []
        fast.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), *strip])
    else:
        bytes_ = 6 in t["types"]
        fast = tokenizers.Tokenizer(models.Unigram(list(zip(t["tokens"], t["scores"])), t["unknown"], bytes_))
        steps = [normalizers.Precompiled(base64.b64decode(t["charsmap"]))] if t["charsmap"] else []
        fast.normalizer = normalizers.Sequence([*steps, normalizers.Replace(tokenizers.Regex(" {2,}"), " ")])
        fast.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
        fast.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()]) if bytes_ else decoders.Metaspace()
    special = [token for token, kind in zip(t["tokens"], t["types"]) if kind in (2, 3)]
    fast.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in special])
    fast.add_tokens([AddedToken("<custom>", normalized=False)])
    return json.loads(fast.to_str())


def chosen(count):
    """Some of the strings: with none of the symbols that a vocabulary's maker defined, which SentencePiece looks for
    in the normalized text and everybody else in the text."""
    all_ = [s for s in strings() if "<custom>" not in s and "\0" not in s]
    return all_[:: max(1, len(all_) // count)]


def main():
    out = dict(packages=dict(sentencepiece=sentencepiece.__version__, tokenizers=tokenizers.__version__), models={})
    texts = chosen(200)
    for name, options in MODELS.items():
        model = train(options)
        t = tables(model)
        judge = sentencepiece.SentencePieceProcessor(model_proto=model)
        fast = tokenizer_json(t)
        library = tokenizers.Tokenizer.from_str(json.dumps(fast))
        ids = [judge.encode(s) for s in texts]
        out["models"][name] = dict(
            tables=t, ids=ids, decoded=[judge.decode(i) for i in ids], tokenizer_json=fast,
            library_ids=[library.encode(s, add_special_tokens=False).ids for s in texts],
        )
    out["texts"] = texts
    json.dump(out, sys.stdout, ensure_ascii=True, separators=(",", ":"))
    print()


if __name__ == "__main__":
    main()
