"""Holds this project's tokenizers to those of other packages, on 5,000 strings and the vocabularies in the packages.

    python3 -m venv V && V/bin/pip install -r packages.txt && npm install --prefix N node-llama-cpp@3.22.1
    V/bin/pip download --no-deps --no-binary :all: llama-cpp-python==0.3.36   # its models/ggml-vocab-*.gguf
    cargo build -p warpwright-model --example tokens
    V/bin/python compare.py --tokens EXAMPLE --ggufs FOLDER-OF-ggml-vocab --node N --work DIR [--update]

GGUF vocabularies are judged by llama.cpp, SentencePiece's models by `sentencepiece`, `tokenizer.json` by `tokenizers`.
`expected.json` has a hash of the judge's tokens for each 100 strings, and, where ours differ, how many strings do, the
first of them, and a hash of ours. With `--update` it is written anew; without, a difference from it is an error. The
vocabularies that are in the repository are held to it by `model/tests/it/strings.rs`.
"""

import argparse
import base64
import hashlib
import json
import pathlib
import subprocess
import sys
import unicodedata

import gguf
import mistral_common
import sentencepiece
import tokenizers
from mistral_common.tokens.tokenizers.tekken import Tekkenizer

import small
from strings import strings

HERE = pathlib.Path(__file__).parent


def write_gguf(path, pairs):
    """A GGUF file of nothing but a vocabulary."""
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in pairs.items():
        key = f"tokenizer.ggml.{key}"
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        else:
            writer.add_array(key, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def of_sentencepiece(path, model):
    """The file as GGUF, as its converter writes it."""
    tables = small.tables(model)
    renamed = {"types": "token_type", "unknown": "unknown_token_id", "charsmap": "precompiled_charsmap"}
    tables["charsmap"] = list(base64.b64decode(tables["charsmap"]))
    pairs = {renamed.get(key, key): value for key, value in tables.items() if value != []}
    write_gguf(path, {**pairs, "bos_token_id": 1})


def merges_of(ranks):
    """The merge that makes each token of a vocabulary of ranks: the last one of BPE below its own rank."""
    out = []
    for token, rank in sorted(ranks.items(), key=lambda item: item[1]):
        parts = [bytes([b]) for b in token]
        while len(parts) > 2:
            pairs = [(ranks.get(parts[i] + parts[i + 1], rank), i) for i in range(len(parts) - 1)]
            best, i = min(pairs)
            if best >= rank:
                break
            parts[i : i + 2] = [parts[i] + parts[i + 1]]
        if len(parts) == 2:
            out.append(parts)
    return out


def committed(name, model):
    """The trained model with the tokens of the one in the repository: the text that it was trained on has changed since."""
    tables = json.loads((HERE / "../../data/sentencepiece.json").read_text("utf-8"))["models"][name]["tables"]
    proto = small.pb.ModelProto()
    proto.ParseFromString(model)
    for piece, *row in zip(proto.pieces, tables["tokens"], tables["scores"], tables["types"], strict=True):
        piece.piece, piece.score, piece.type = row
    return proto.SerializeToString()


def alphabet():
    """GPT-2's characters of bytes."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = iter(range(256, 512))
    return {b: chr(b) if b in printable else chr(next(rest)) for b in range(256)}


def of_tekken(path, source):
    """The file as GGUF, and a judge of texts."""
    data = json.loads(source.read_text("utf-8"))
    specials = data["config"]["default_num_special_tokens"]
    size = data["config"]["default_vocab_size"] - specials
    ranks = {base64.b64decode(t["token_bytes"]): t["rank"] for t in data["vocab"][:size]}
    letters = alphabet()
    spell = lambda raw: "".join(letters[b] for b in raw)
    tokens = [f"<SPECIAL_{i}>" for i in range(specials)] + [spell(t) for t, _ in sorted(ranks.items(), key=lambda item: item[1])]
    write_gguf(path, {"model": "gpt2", "pre": "tekken", "tokens": tokens, "token_type": [3] * specials + [1] * size,
                      "merges": [f"{spell(a)} {spell(b)}" for a, b in merges_of(ranks)], "bos_token_id": 1})
    judge = Tekkenizer.from_file(source)
    return lambda text: judge.encode(text, bos=False, eos=False)


def llama_cpp(node, model, texts, mode):
    out = node / "ids.json"
    subprocess.run(["node", "judge.mjs", model, texts, mode, out], cwd=node, capture_output=True, check=True)
    return json.loads(out.read_text())


def ours(program, model, texts, mode):
    done = subprocess.run([program, model, texts, mode], capture_output=True, text=True)
    return json.loads(done.stdout) if done.returncode == 0 else done.stderr.strip()


def without_eos(path, work):
    """A copy of a file that does not put EOS behind a text, which ours refuses to do. Its tokens are the same."""
    data = bytearray(path.read_bytes())
    key = b"tokenizer.ggml.add_eos_token"
    if key not in data:
        return path
    value = data.index(key) + len(key) + 4  # after the type
    data[value] = 0
    copy = work / path.name
    copy.write_bytes(data)
    return copy


def of_llama_cpp(args, path, texts):
    """By llama.cpp with control tokens by name, without, and, where a model wants NFC, which llama.cpp leaves out, on
    strings in NFC; by transformers on the strings that llama.cpp keeps beside its vocabularies."""
    name = path.stem.removeprefix("ggml-vocab-")
    file = without_eos(path, args.work)
    for kind in ["special", "literal"] + ["nfc"] * (name in ("qwen2", "qwen35", "command-r")):
        given = [unicodedata.normalize("NFC", text) for text in texts] if kind == "nfc" else texts
        mode = "literal" if kind == "nfc" else kind
        kept = args.work / f"{path.stem}.{kind}.json"
        if not kept.exists():
            kept.write_text(json.dumps(llama_cpp(args.node, path, save(args.work, given), mode)))
        yield f"{name} {kind}", "llama.cpp", mode, file, given, json.loads(kept.read_text())
    recorded = path.with_suffix(".gguf.inp")
    if recorded.exists():
        given = recorded.read_text("utf-8").split("\n__ggml_vocab_test__\n")
        lines = path.with_suffix(".gguf.out").read_text().split("\n")
        yield f"{name} recorded", "transformers", "special", file, given, [list(map(int, line.split())) for line in lines][: len(given)]


def vocabularies(args, texts):
    """Each vocabulary: its name, its judge, the mode, the file that ours reads, the strings, what the judge gives."""
    (args.node / "judge.mjs").write_text((HERE / "judge.mjs").read_text())
    for path in sorted(args.ggufs.glob("ggml-vocab-*.gguf")):
        if "bert-bge" not in path.name:  # WordPiece, of an embedding model
            yield from of_llama_cpp(args, path, texts)
    data = pathlib.Path(mistral_common.__file__).parent / "data"
    models = sorted(p for p in data.iterdir() if ".model" in p.name)
    trained = {f"own {name}": committed(name, small.train(options)) for name, options in small.MODELS.items()}
    for name, model in [(p.name, p.read_bytes()) for p in models] + list(trained.items()):
        path = args.work / f"{name}.gguf"
        of_sentencepiece(path, model)
        judge = sentencepiece.SentencePieceProcessor(model_proto=model)
        yield name, "sentencepiece", "literal", path, texts, [judge.encode(text) for text in texts]
    for source in sorted(data.glob("tekken_*.json")):
        path = args.work / f"{source.name}.gguf"
        judge = of_tekken(path, source)
        yield source.name, "mistral_common", "literal", path, texts, [judge(text) for text in texts]
    for name, model in [("rustdoc-7m", HERE / "../../data/rustdoc-7m"), ("rustdoc-7m GGUF", HERE / "../../../assets/rustdoc-7m-Q4_K_M.gguf")]:
        judge = tokenizers.Tokenizer.from_file(str(HERE / "../../data/rustdoc-7m/tokenizer.json"))
        ids = [judge.encode(text, add_special_tokens=False).ids for text in texts]
        yield name, "tokenizers", "special", model, texts, ids
    for name, model in trained.items():
        folder = args.work / f"{name} folder"
        folder.mkdir(exist_ok=True)
        text = json.dumps(small.tokenizer_json(small.tables(model)))
        (folder / "tokenizer.json").write_text(text)
        judge = tokenizers.Tokenizer.from_str(text)
        ids = [judge.encode(text, add_special_tokens=False).ids for text in texts]
        yield f"{name} tokenizer.json", "tokenizers", "special", folder, texts, ids


def save(work, texts):
    path = work / "strings.json"
    path.write_text(json.dumps(texts), "utf-8")
    return path


def blocks(ids):
    """A hash for each 100 strings."""
    text = lambda part: json.dumps(part, separators=(",", ":")).encode()
    return [hashlib.sha256(text(ids[i : i + 100])).hexdigest()[:12] for i in range(0, len(ids), 100)]


def main():
    """Compares all, and writes or checks expected.json."""
    parser = argparse.ArgumentParser()
    for option in ("--tokens", "--ggufs", "--node", "--work"):
        parser.add_argument(option, type=lambda p: pathlib.Path(p).resolve(), required=True)
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--show", type=int, default=3)
    args = parser.parse_args()
    args.work.mkdir(exist_ok=True)
    found = {}
    for name, judge, mode, path, texts, expected in vocabularies(args, strings()):
        got = ours(args.tokens, path, save(args.work, texts), mode)
        if isinstance(got, str):
            found[name] = dict(judge=judge, refused=got.split(": ", 2)[-1])
            print(f"{name}: refused: {got}")
            continue
        wrong = [i for i, (a, b) in enumerate(zip(got, expected, strict=True)) if a != b]
        found[name] = dict(judge=judge, strings=len(texts), blocks=blocks(expected))
        if wrong:
            pairs = enumerate(zip(blocks(got), blocks(expected)))
            own = {index: own for index, (own, of_judge) in pairs if own != of_judge}
            found[name] |= dict(different=len(wrong), first=wrong[:5], ours=own)
        print(f"{name} by {judge}: {len(texts) - len(wrong)} of {len(texts)}")
        for i in wrong[: args.show]:
            print(f"   {i} {texts[i]!r}\n     judge {expected[i]}\n     ours  {got[i]}")
        sys.stdout.flush()
    file = HERE / "expected.json"
    if args.update:
        lines = [f"{json.dumps(name)}: {json.dumps(entry, separators=(',', ':'))}" for name, entry in found.items()]
        file.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    elif json.loads(file.read_text()) != json.loads(json.dumps(found)):
        sys.exit("this is not what expected.json says; read the differences, then --update")


if __name__ == "__main__":
    main()
