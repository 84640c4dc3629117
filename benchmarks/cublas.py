"""Times products of cuBLAS the way `tests/examples/matmul.rs` times ours: a CUDA graph of launches that go through
enough copies of the weights to find none in the L2 cache, a rest of 25 ms before it, the best of five.

    python3 cublas.py 512,2048 [6144x4096,..] [float16,bfloat16,float16:float32]

y = x W^T with x [tokens, n], W [rows, n] and y in the same type, or y in the type after a colon. Prints a line for each:
type, rows, n, tokens, us, TFLOPS. Needs torch, which calls cuBLAS; a type of y needs torch 2.8."""

import sys
import time

import torch

SHAPES = "6144x4096,4096x4096,28672x4096,4096x14336,2048x1536,1536x1536,17920x1536,1536x8960"
COLD = 256 << 20


def measure(kind, result, rows, n, tokens):
    copies = min(max(COLD // (2 * rows * n), 2), 24)
    weights = [torch.rand(rows, n, device="cuda", dtype=kind) - 0.5 for _ in range(copies)]
    x = torch.rand(tokens, n, device="cuda", dtype=kind) - 0.5
    y = torch.empty(tokens, rows, device="cuda", dtype=result)

    def multiply(w):
        if result == kind:
            torch.mm(x, w.t(), out=y)
        else:
            torch.mm(x, w.t(), out_dtype=result, out=y)

    flops = 2.0 * rows * n * tokens
    launches = min(max(copies, int(4e-3 / (flops / 6e14))), 200)
    multiply(weights[0])
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for launch in range(launches):
            multiply(weights[launch % copies])
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    best = float("inf")
    for _ in range(5):
        time.sleep(0.025)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        best = min(best, begin.elapsed_time(end))
    us = best * 1e3 / launches
    return us, flops / us * 1e-6


def main():
    given = dict(enumerate(sys.argv[1:]))
    tokens = given.get(0, "512,2048")
    shapes, kinds = given.get(1, SHAPES), given.get(2, "float16,bfloat16")
    for kind in kinds.split(","):
        types = [getattr(torch, name) for name in kind.split(":")]
        for shape in shapes.split(","):
            rows, n = map(int, shape.split("x"))
            for count in map(int, tokens.split(",")):
                us, tflops = measure(types[0], types[-1], rows, n, count)
                print(f"{kind:<15} {rows:>6} {n:>6} {count:>6} {us:>8.2f} {tflops:>7.0f}")


main()
