#!/usr/bin/env python3
"""A Llama in float64 with NumPy: log-likelihoods of tokens, and embeddings, to compare others with.

    perplexity.py score MODEL.gguf IDS [--keep f16] [--ctx 512] [--windows N] [--no-bos] [--bits 16,q+k=24] > ORACLE.tsv
    perplexity.py compare FOUND.tsv ORACLE.tsv [--mean 2e-4] [--p99 0.01]
    perplexity.py embed MODEL.gguf IDS > ORACLE.json
    perplexity.py cases MODEL.gguf IDS > cases.json
    perplexity.py draw MODEL.gguf > drawn.txt
    perplexity.py write MODEL.gguf BF16|F32 OUT.gguf

IDS is a file with the tokens of a text, or - for standard input. `--keep f16` rounds keys and values to binary16, in which
most engines keep them; all else stays float64. `--bits` rounds activations as Warpwright does before products: to integers
of so many bits, of which 32 share a scale, and before o and down to 16 bits with a scale for 8 first. It needs numpy and gguf from PyPI: the weights are what
gguf decodes, everything else is a formula here. README.md says what is scored, and what the files are.
"""
import argparse, json, pathlib, sys

import gguf, numpy
from gguf import GGUFReader, GGUFWriter, quants

TABLE = "# window\tposition\ttoken\tlog-likelihood"


# Products of a layer, and the LM head.
PRODUCTS = ["q", "k", "v", "o", "gate", "up", "down", "head"]


def integers(x, bits, group):
    """Rounded to integers of so many bits, of which `group` share a scale that maps the largest to 126/128 of the range."""
    x_ = x.reshape(*x.shape[:-1], -1, group)
    scale = numpy.maximum(numpy.abs(x_).max(-1, keepdims=True), 1e-30) / (32256 * 2.0 ** (bits - 16))
    return (numpy.rint(x_ / scale) * scale).reshape(x.shape)


class Model:
    def __init__(self, path, keep=numpy.float64, bits={}):
        self.reader, self.keep, self.bits = GGUFReader(path), keep, bits
        assert self.key("general.architecture") == "llama", "only llama is written here"
        self.heads = self.key("llama.attention.head_count")
        self.kv_heads = self.key("llama.attention.head_count_kv")
        self.layers = self.key("llama.block_count")
        self.epsilon = self.key("llama.attention.layer_norm_rms_epsilon")
        self.theta = self.key("llama.rope.freq_base", 10000.0)
        self.bos = self.key("tokenizer.ggml.bos_token_id") if self.key("tokenizer.ggml.add_bos_token", False) else None
        decoded = lambda t: quants.dequantize(t.data, t.tensor_type).astype(numpy.float64)
        self.weights = {tensor.name: decoded(tensor) for tensor in self.reader.tensors}

    def key(self, name, default=None):
        field = self.reader.get_field(name)
        return default if field is None else field.contents()

    def hidden(self, ids, caches=None):
        """The residual stream of each token after the last layer and the last norm: [tokens, hidden].

        With `caches`, keys and values of each layer or None, the tokens go on from those before them."""
        w, caches = self.weights, caches or [None] * self.layers
        x = w["token_embd.weight"][ids]
        for i in range(self.layers):
            layer = lambda name: w[f"blk.{i}.{name}.weight"]
            n = self.norm(x, layer("attn_norm"))
            q, k, v = (self.rounded(name, n) @ layer(f"attn_{name}").T for name in "qkv")
            heads, caches[i] = self.attention(q, k, v, caches[i])
            x = x + self.rounded("o", heads) @ layer("attn_output").T
            n = self.norm(x, layer("ffn_norm"))
            gate, up = (self.rounded(name, n) @ layer(f"ffn_{name}").T for name in ("gate", "up"))
            x = x + self.rounded("down", gate / (1 + numpy.exp(-gate)) * up) @ layer("ffn_down").T
        return self.rounded("head", self.norm(x, w["output_norm.weight"]))

    def rounded(self, product, x):
        """The activations of a product as `--bits` says; as they are without."""
        if product not in self.bits:
            return x
        x = integers(x, 16, 8) if product in ("o", "down") else x
        return integers(x, self.bits[product], 32)

    def norm(self, x, weights):
        return x / numpy.sqrt((x * x).mean(-1, keepdims=True) + self.epsilon) * weights

    def attention(self, q, k, v, cache):
        """What the heads give, and keys and values of all tokens so far."""
        tokens, before = len(q), 0 if cache is None else cache[0].shape[1]
        split = lambda x, heads: x.reshape(tokens, heads, -1).transpose(1, 0, 2)
        q, k, v = split(q, self.heads), split(k, self.kv_heads), split(v, self.kv_heads)
        q, k = self.rotate(q, before), self.rotate(k, before)
        k, v = (x.astype(self.keep).astype(numpy.float64) for x in (k, v))
        if cache is not None:
            k, v = (numpy.concatenate(both, 1) for both in zip(cache, (k, v)))
        keys, values = (numpy.repeat(x, self.heads // self.kv_heads, 0) for x in (k, v))
        scores = q @ keys.transpose(0, 2, 1) / numpy.sqrt(q.shape[-1])
        later = numpy.triu(numpy.ones((tokens, before + tokens), bool), before + 1)
        p = numpy.exp(numpy.where(later, -numpy.inf, scores - scores.max(-1, keepdims=True)))
        return (p / p.sum(-1, keepdims=True) @ values).transpose(1, 0, 2).reshape(tokens, -1), (k, v)

    def rotate(self, x, before):
        """Pairs of neighbours, as GGUF files of Llama have them."""
        dim = x.shape[-1]
        angle = (before + numpy.arange(x.shape[1]))[:, None] * self.theta ** (-numpy.arange(0, dim, 2) / dim)
        cos, sin = numpy.cos(angle), numpy.sin(angle)
        even, odd = x[..., ::2], x[..., 1::2]
        return numpy.stack([even * cos - odd * sin, even * sin + odd * cos], -1).reshape(x.shape)

    def log_likelihoods(self, ids, first):
        """Of ids[first:], each after all before it."""
        head = self.weights.get("output.weight", self.weights["token_embd.weight"])
        logits = self.hidden(ids[:-1])[first - 1:] @ head.T
        largest = logits.max(-1)
        total = largest + numpy.log(numpy.exp(logits - largest[:, None]).sum(-1))
        return logits[numpy.arange(len(logits)), ids[first:]] - total


def tokens(path):
    text = sys.stdin.read() if path == "-" else pathlib.Path(path).read_text()
    return numpy.array([int(number) for number in text.replace(",", " ").split()])


def scored(model, ids, ctx, windows=None, bos=True):
    """Window, position, token and log-likelihood of what llama.cpp scores."""
    first = ctx // 2 + 1
    for index in range(min(len(ids) // ctx, windows or len(ids))):
        window = ids[index * ctx:(index + 1) * ctx].copy()
        if bos and model.bos is not None:
            window[0] = model.bos
        likelihoods = model.log_likelihoods(window, first)
        yield from ((index, first + i, int(window[first + i]), float(l)) for i, l in enumerate(likelihoods))


def bits(text):
    """Bits of the activations of each product: of all, then of some."""
    all_, *some = text.split(",")
    of = dict.fromkeys(PRODUCTS, int(all_))
    for names, number in (part.split("=") for part in some):
        of |= dict.fromkeys(names.split("+"), int(number))
    if unknown := of.keys() - PRODUCTS:
        raise argparse.ArgumentTypeError(f"{', '.join(sorted(unknown))}: the products are {', '.join(PRODUCTS)}")
    return of


def score(args):
    print(TABLE)
    model = Model(args.model, {"f64": numpy.float64, "f16": numpy.float16}[args.keep], args.bits)
    for index, position, token, likelihood in scored(model, tokens(args.ids), args.ctx, args.windows, not args.no_bos):
        print(f"{index}\t{position}\t{token}\t{likelihood!r}", flush=position == args.ctx - 1)


def compare(args):
    read = lambda path: numpy.loadtxt(path, ndmin=2)
    found, oracle = read(args.found), read(args.oracle)
    oracle = oracle[:len(found)]
    assert len(found) and (found[:, :3] == oracle[:, :3]).all(), "other tokens were scored"
    off = numpy.abs(found[:, 3] - oracle[:, 3])
    means = found[:, 3].mean(), oracle[:, 3].mean()
    apart, p99 = abs(means[0] - means[1]), numpy.quantile(off, 0.99)
    passed = apart <= args.mean and p99 <= args.p99
    print(f"{len(found)} tokens, mean {means[0]:.6f}, oracle {means[1]:.6f}, apart {apart:.2e}; a token: median "
          f"{numpy.median(off):.2e}, p99 {p99:.2e}, largest {off.max():.2e}; {'within' if passed else 'BEYOND'} "
          f"{args.mean:g} and {args.p99:g}")
    sys.exit(not passed)


def pooled(hidden):
    """Mean and last hidden state, each of length 1."""
    unit = lambda x: (x / numpy.sqrt((x * x).sum())).tolist()
    return {"mean": unit(hidden.mean(0)), "last": unit(hidden[-1])}


def embed(args):
    print(json.dumps(pooled(Model(args.model).hidden(tokens(args.ids)))))


# Windows that are short enough for an emulator.
CASES = {"ctx": 32, "windows": 2}


def cases(args):
    """What the tests of the program hold it to: few tokens, rounded to what f32 has."""
    model, ids = Model(args.model), tokens(args.ids)
    round_ = lambda numbers: [float(f"{x:.8g}") for x in numbers]
    ids = ids[:CASES["ctx"] * CASES["windows"]]
    likelihoods = round_(row[3] for row in scored(model, ids, CASES["ctx"]))
    vectors = {name: round_(vector) for name, vector in pooled(model.hidden(ids[:20])).items()}
    print(json.dumps(CASES | {"ids": ids.tolist(), "log_likelihoods": likelihoods, "embedded": 20, "embeddings": vectors}))


def draw(args):
    """32 windows of 512 tokens that the model draws at temperature 1: a text that it finds ordinary."""
    model, generator = Model(args.model), numpy.random.Generator(numpy.random.PCG64(13))
    head = model.weights.get("output.weight", model.weights["token_embd.weight"])
    for _ in range(32):
        ids, caches = [model.bos], [None] * model.layers
        while len(ids) < 512:
            logits = model.hidden(numpy.array(ids[-1:]), caches)[-1] @ head.T
            p = numpy.exp(logits - logits.max()).cumsum()
            ids.append(int(numpy.searchsorted(p, generator.random() * p[-1], "right")))
        print(",".join(map(str, ids)), flush=True)


def write(args):
    """The same model in a format that a file's weights are cast to. Norms stay F32."""
    reader, kind = GGUFReader(args.model), gguf.GGMLQuantizationType[args.format]
    writer = GGUFWriter(args.out, "llama")
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        value_type, element = field.types[0], field.types[-1] if len(field.types) > 1 else None
        writer.add_key_value(name, field.contents(), value_type, element)
    for tensor in reader.tensors:
        numbers = quants.dequantize(tensor.data, tensor.tensor_type).astype(numpy.float32)
        kind_ = kind if numbers.ndim > 1 else gguf.GGMLQuantizationType.F32
        writer.add_tensor(tensor.name, quants.quantize(numbers, kind_), raw_dtype=kind_)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(required=True)

    def command(run, *names):
        made = commands.add_parser(run.__name__)
        made.set_defaults(run=run)
        [made.add_argument(name) for name in names]
        return made

    made = command(score, "model", "ids")
    made.add_argument("--ctx", type=int, default=512)
    made.add_argument("--windows", type=int)
    made.add_argument("--no-bos", action="store_true")
    made.add_argument("--keep", choices=["f64", "f16"], default="f64")
    made.add_argument("--bits", type=bits, default={}, metavar="16,q+k=24")
    made = command(compare, "found", "oracle")
    made.add_argument("--mean", type=float, default=2e-4)
    made.add_argument("--p99", type=float, default=0.01)
    command(embed, "model", "ids")
    command(draw, "model")
    command(cases, "model", "ids")
    command(write, "model", "format", "out")
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
