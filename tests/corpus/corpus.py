"""Compiles the corpus to PTX, runs it on the emulator, and compares with NumPy. `README.md` says how to call it."""

import argparse
import dataclasses
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import types
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from cases import Case, InOut, Out, Struct, Surface, TensorMap, Texture

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
TARGET = ROOT / "target" / "corpus"
RUNNER = ROOT / "target" / "debug" / "examples" / "launch"
SCHEDULES = [
    {"seed": 0, "order": "in order"},
    {"seed": 1, "order": "reversed"},
    {"seed": 2, "order": "shuffled"},
    {"seed": 3, "order": "shuffled"},
    {"seed": 4, "order": "shuffled"},
]
# Seconds that all schedules of a kernel may take together.
LIMIT = 120
# What stands between the messages of a text that does not load.
BETWEEN = " / "


def module_of(path):
    """The Python module of a file."""
    sys.path += [str(HERE)] if str(HERE) not in sys.path else []
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def nvcc():
    """nvcc and the folders that it needs, from PyPI or from `CUDA_HOME`."""
    if home := os.environ.get("CUDA_HOME"):
        return Path(home)
    import nvidia

    return next(p / "cu13" for p in map(Path, nvidia.__path__) if (p / "cu13" / "bin" / "nvcc").exists())


def compile_cuda(source, arch, flags, ptx):
    """Compiles a source unless its PTX is newer; gives the message of a failure."""
    if ptx.exists() and ptx.stat().st_mtime > source.stat().st_mtime:
        return None
    home = nvcc()
    command = [home / "bin" / "nvcc", "-ptx", "-lineinfo", "-std=c++17", f"-arch={arch}", *flags]
    command += [f"-I{home}/include", f"-I{home}/include/cccl", source, "-o", ptx]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    errors = [line for line in (done.stdout + done.stderr).splitlines() if "error" in line]
    return "; ".join(errors[:3]) or f"exit code {done.returncode}" if done.returncode else None


def cut(text, entry):
    """The PTX text without its other kernels; lines keep their numbers."""
    out, at = [], 0
    for head in re.finditer(r"^(\.visible |\.weak )?\.entry ([\w$]+)", text, re.M):
        depth, end = 0, text.index("{", head.end())
        for brace in re.finditer(r"[{}]", text[end:]):
            depth += 1 if brace.group() == "{" else -1
            if depth == 0:
                break
        end += brace.end()
        if head.group(2) != entry:
            out += [text[at : head.start()], "\n" * text.count("\n", head.start(), end)]
            at = end
    return "".join(out) + text[at:]


def entry_of(text, part):
    """The one kernel whose name is `part`, or has it in its mangled name."""
    names = re.findall(r"\.entry ([\w$]+)", text)
    found = [n for n in names if n == part] or [n for n in names if part in n]
    if len(found) != 1:
        raise LookupError(f"{part}: {found or 'none'} of {names}")
    return found[0]


def places(lines, at):
    """(file, line) of the source of a line of PTX: where it stands, then where that is inlined, and so on."""
    files = dict(re.findall(r'^\s*\.file\s+(\d+) "([^"]*)"', "\n".join(lines), re.M))
    locs = (re.match(r"\s*\.loc\s+(\d+) (\d+) (\d+)(?:, .*inlined_at (\d+) (\d+) (\d+))?", l) for l in reversed(lines[:at]))
    locs, found, wanted = [l for l in locs if l], [], None
    for loc in locs:
        if wanted is None or loc.group(1, 2, 3) == wanted:
            found.append((files.get(loc[1], "?").rsplit("/", 1)[-1], int(loc[2])))
            if (wanted := loc.group(4, 5, 6)) == (None, None, None):
                return found
    return [*found, (files.get(wanted[0], "?").rsplit("/", 1)[-1], int(wanted[1]))] if wanted else found


def triple(n):
    return [*((n,) if isinstance(n, int) else n), 1, 1][:3]


def seed(case):
    """What the inputs of a case are drawn from."""
    return zlib.crc32(case.make.__name__.encode())


class Job:
    """The description of a launch, its data written to files, and what is expected of it."""

    def __init__(self, case: Case, entry, ptx: Path, folder: Path):
        self.folder, self.buffers, self.expected = folder, [], []
        folder.mkdir(parents=True, exist_ok=True)
        args = case.make(np.random.default_rng(seed(case)))
        args = [part for arg in args for part in (numba_array(arg) if case.arrays else [arg])]
        self.json = {
            "ptx": str(ptx),
            "kernel": entry,
            "grid": triple(case.grid),
            "block": triple(case.block),
            "shared": case.shared,
            "cooperative": case.cooperative,
            "cluster": case.cluster and triple(case.cluster),
            "args": [self.argument(a) for a in [*args, *case.arguments]],
            "symbols": [{"name": n, "data": self.data(n, d)} for n, d in case.symbols.items()],
            "buffers": self.buffers,
            "outputs": list(range(len(self.expected))),
            "fuel": case.fuel,
            "out": str(folder / "out"),
        }

    def data(self, name, array):
        path = self.folder / f"{name}.bin"
        path.write_bytes(np.ascontiguousarray(array).tobytes())
        return str(path)

    def argument(self, arg):
        if isinstance(arg, TensorMap):
            like = np.asarray(getattr(arg.array, "initial", arg.array))
            (rows, columns), size = like.shape, like.itemsize
            rest = {"element": size, "dims": [columns, rows], "strides": [columns * size], "boxed": arg.boxed[::-1]}
            return {"map": {"buffer": self.buffer(arg.array), "swizzle": arg.swizzle, **rest}}
        if isinstance(arg, (Texture, Surface)):
            return self.image(arg)
        if isinstance(arg, Struct):
            return self.struct(arg)
        if isinstance(arg, (np.ndarray, Out, InOut)) and not (isinstance(arg, np.ndarray) and arg.ndim == 0):
            return {"bytes": [0] * 8, "pointers": [[0, self.buffer(arg)]]}
        return {"bytes": list(np.asarray(arg).tobytes())}

    def image(self, arg):
        """A texture, or a surface, which has no sampler."""
        like = arg.array.expected if isinstance(arg.array, Out) else getattr(arg.array, "initial", arg.array)
        like = np.asarray(like)
        size = list(like.shape[: like.ndim - (arg.channels > 1)])[::-1]
        shape = arg.shape or f"{len(size)}d"
        extent = [size[0], 1, size[1]] if shape == "1dlayered" else [*size, 1, 1][:3]
        sampler = {k: getattr(arg, k) for k in ["filter", "address", "read", "normalized"]} if isinstance(arg, Texture) else None
        image = {"type": like.dtype.str[1:], "channels": arg.channels, "shape": shape, "extent": extent}
        return {"image": {"buffer": self.buffer(arg.array), "sampler": sampler, **image}}

    def struct(self, struct):
        data, pointers, widest = [], [], 1
        for member in map(self.argument, struct.members):
            size = len(member["bytes"])
            data += [0] * (-len(data) % min(size, 16))
            pointers += [[at + len(data), index] for at, index in member.get("pointers", [])]
            data, widest = data + member["bytes"], max(widest, min(size, 16))
        return {"bytes": data + [0] * (-len(data) % widest), "pointers": pointers}

    def buffer(self, arg):
        index = len(self.buffers)
        name = f"buffer {index}"
        if isinstance(arg, Out):
            before, after = None, arg
        elif isinstance(arg, InOut):
            before, after = np.asarray(arg.initial), arg
        else:
            before, after = arg, Out(arg)
        like = np.asarray(after.expected if before is None else before)
        if after.expected is not None:
            kind = like.dtype if before is None else before.dtype
            after.expected = np.ascontiguousarray(np.asarray(after.expected).astype(kind, copy=False))
        self.buffers.append({"label": name, "bytes": like.nbytes, "data": before is not None and self.data(name, before) or None})
        self.expected.append((like, after))
        return index

    def wrong(self, run):
        """What is wrong with the results of a run, or None."""
        path = self.folder / f"out.{run}"
        found = (path if path.exists() else self.folder / "out.0").read_bytes()
        for index, (like, after) in enumerate(self.expected):
            got, found = np.frombuffer(found[: like.nbytes], like.dtype).reshape(like.shape), found[like.nbytes :]
            if after.expected is not None and (why := differs(got, after)):
                return f"buffer {index}: {why}"
        return None

    def run(self, schedules, limit=LIMIT):
        """Runs the job; gives what the runner printed, or what stopped it."""
        for old in self.folder.glob("out.*"):
            old.unlink()
        text = json.dumps({**self.json, "schedules": schedules}, default=int)
        try:
            done = subprocess.run([RUNNER], input=text, capture_output=True, text=True, timeout=limit)
        except subprocess.TimeoutExpired:
            return {"stopped": f"more than {limit} s"}
        return json.loads(done.stdout) if done.returncode == 0 else {"stopped": done.stderr.strip()}


def numba_array(arg):
    """What numba passes for an array: two pointers that stay empty, sizes, the data, shape and strides."""
    like = arg.expected if isinstance(arg, Out) else arg.initial if isinstance(arg, InOut) else arg
    if np.ndim(like) == 0:
        return [arg]
    like = np.ascontiguousarray(like)
    return [np.uint64(0), np.uint64(0), *np.int64([like.size, like.itemsize]), arg, *np.int64([*like.shape, *like.strides])]


def differs(got, after):
    """How a result differs from what is expected, or None."""
    want = after.expected.reshape(got.shape)
    if after.order:
        got, want = np.sort(got, None), np.sort(want, None)
    if after.within == 0:
        bad = got.view(f"V{got.itemsize}") != want.view(f"V{got.itemsize}") if got.dtype.kind != "f" else ~same(got, want)
    else:
        with np.errstate(invalid="ignore", over="ignore"):
            scale = np.max(np.abs(np.where(np.isfinite(want), want, 0)), initial=0)
            bad = ~(same(got, want) | (np.abs(got.astype(float) - want) <= after.within * scale))
    if not bad.any():
        return None
    at = np.argmax(bad)
    return f"{np.count_nonzero(bad)} of {bad.size} differ, first at {at}: {got.flat[at]} instead of {want.flat[at]}"


def same(got, want):
    return (got == want) | (np.isnan(got) & np.isnan(want))


def cuda_kernels(names):
    """Compiles the CUDA sources; gives (source, case, PTX file or the compiler's message)."""
    sources = [s for s in sorted((HERE / "cuda").glob("*.cu")) if not names or s.stem in names]
    (TARGET / "cuda").mkdir(parents=True, exist_ok=True)

    def one(source):
        cases = module_of(source.with_suffix(".py"))
        ptx = TARGET / "cuda" / f"{source.stem}.ptx"
        arch, flags = getattr(cases, "ARCH", "sm_80"), getattr(cases, "FLAGS", [])
        return source, cases.CASES, compile_cuda(source, arch, flags, ptx), ptx

    with ThreadPoolExecutor(2) as pool:
        for source, cases, error, ptx in pool.map(one, sources):
            for name, case in cases.items():
                yield f"cuda/{source.name}", name, case, error, ptx


def triton_kernels(names):
    """Compiles the Triton sources for both targets; gives what `cuda_kernels` gives."""
    for source in sorted((HERE / "triton").glob("*.py")):
        if names and source.stem not in names and "triton" not in names:
            continue
        for name, case in module_of(source).CASES.items():
            for arch in (80, 90):
                ptx = TARGET / "triton" / f"{source.stem}_{name}_sm_{arch}.ptx"
                error, shared = compile_triton(case, arch, ptx)
                found = dataclasses.replace(case, shared=shared, arguments=[np.uint64(0), np.uint64(0)])
                yield f"triton/{source.name}", f"{name}_sm_{arch}", found, error, ptx


def compile_triton(case, arch, ptx):
    """Compiles a kernel as Triton's launcher would; gives the message of a failure, and the bytes of shared memory."""
    import triton
    from triton.backends.compiler import GPUTarget

    ptx.parent.mkdir(parents=True, exist_ok=True)
    names, kinds = case.function.arg_names, iter(case.signature.split())
    full = {name: "constexpr" if name in case.constants else next(kinds) for name in names}
    attrs = {(i,): [["tt.divisibility", 16]] for i, name in enumerate(names) if full[name].endswith(":16")}
    signature = {name: kind.removesuffix(":16") for name, kind in full.items()}
    source = triton.compiler.ASTSource(fn=case.function, signature=signature, constexprs=case.constants, attrs=attrs)
    options = {"num_warps": case.block // 32, "num_stages": case.stages, "enable_fp_fusion": True}
    try:
        done = triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options)
    except Exception as e:
        return f"{type(e).__name__}: {e}", 0
    ptx.write_text(done.asm["ptx"])
    return None, done.metadata.shared


def numba_kernels(names):
    """Compiles the numba sources; gives what `cuda_kernels` gives."""
    for source in sorted((HERE / "numba").glob("*.py")):
        if names and source.stem not in names and "numba" not in names:
            continue
        for name, case in module_of(source).CASES.items():
            ptx = TARGET / "numba" / f"{source.stem}_{name}.ptx"
            error = compile_numba(case, ptx)
            yield f"numba/{source.name}", name, dataclasses.replace(case, arrays=True), error, ptx


def compile_numba(case, ptx):
    """Compiles a kernel for its types, as `sm_80`; gives the message of a failure."""
    from numba import cuda
    from numba.cuda import dispatcher

    # A device function asks the driver, which is not there, what to compile for.
    dispatcher.get_current_device = lambda: types.SimpleNamespace(compute_capability=(8, 0))
    ptx.parent.mkdir(parents=True, exist_ok=True)
    try:
        text, _ = cuda.compile_ptx(case.function.py_func, case.signature, cc=(8, 0), **case.options)
    except Exception as e:
        return f"{type(e).__name__}: {e}"
    ptx.write_text(text)
    return None


def all_kernels(names):
    """Every kernel of the sources named, or of all."""
    yield from cuda_kernels(names)
    yield from triton_kernels(names)
    yield from numba_kernels(names)


def prepared(name, case, ptx):
    """The job of a case, on the module as the compiler wrote it."""
    entry = entry_of(ptx.read_text(), case.kernel)
    folder = TARGET / "run" / ptx.stem / name
    shutil.rmtree(folder, ignore_errors=True)
    return Job(case, entry, ptx, folder)


def outcome(kernel):
    """Runs a kernel; gives (source, name, what came of it), the last None where all is well."""
    source, name, case, error, ptx = kernel
    if error:
        return source, name, f"not compiled: {error}"
    try:
        job = prepared(name, case, ptx)
    except LookupError as e:
        return source, name, f"not compiled: {e}"
    traced = [{**s, "trace": trace} for trace in (True, False) for s in SCHEDULES]
    answer = job.run(traced)
    if "load" in answer:
        return source, name, "not loaded: " + BETWEEN.join(dict.fromkeys(answer["load"]))
    if "stopped" in answer:
        return source, name, f"stopped: {answer['stopped']}"
    for i, fault in enumerate(answer["runs"]):
        if fault:
            at = fault["at"] or {"text": "", "source": None}
            return source, name, f"finding: {fault['class']}: {fault['what']} at line {at['source']} `{at['text']}`"
        if why := job.wrong(i):
            return source, name, f"wrong: schedule {i}: {why}"
    return source, name, None


HEADER = ["source", "kernel", "compiled", "loads", "equal", "what is missing"]
STAGES = ["not compiled", "not loaded", "stopped", "finding", "wrong", "ok"]


def tsv(header, rows):
    """A table as tab-separated values."""
    return "".join("\t".join(map(str, cells)) + "\n" for cells in [header, *rows])


def table(results):
    """results.tsv"""
    return tsv(HEADER, map(row, results))


def row(result):
    source, name, what = result
    stage = STAGES.index((what or "ok").split(":")[0])
    yes = lambda reached: "yes" if reached else "no"
    return [source, name, yes(stage > 0), yes(stage > 1), yes(stage == 5), shortened(what or "")]


def shortened(what, most=240):
    what = re.sub(r"0x[0-9a-f]+", "an address", what).replace("\t", " ").replace("\n", " ")
    return what if len(what) <= most else what[:most].rsplit(" ", 1)[0] + " ..."


def missing(results):
    """Every message with the number of kernels that it stops, most first."""
    messages = {}
    for _, name, what in results:
        if what:
            stage, _, rest = what.partition(": ")
            for message in rest.split(BETWEEN) if stage == "not loaded" else [rest]:
                messages.setdefault(f"{stage}: {shortened(message)}", set()).add(name)
    lines = sorted(messages.items(), key=lambda item: (-len(item[1]), item[0]))
    return "".join(f"{len(names):3} {message} [{', '.join(sorted(names)[:4])}]\n" for message, names in lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="stems of sources; all without")
    parser.add_argument("--table", action="store_true", help="write results.tsv")
    parser.add_argument("--missing", metavar="FILE", help="write what stops kernels, with their number")
    args = parser.parse_args()
    if args.table and args.names:
        parser.error("the table is of all sources")
    kernels = list(all_kernels(args.names))
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(outcome, kernels))
    for source, name, what in results:
        print(f"{source:24} {name:28} {what or 'ok'}")
    if args.table:
        (HERE / "results.tsv").write_text(table(results))
    if args.missing:
        Path(args.missing).write_text(missing(results))
    bad = sum(what is not None for _, _, what in results)
    print(f"{len(results)} kernels, {len(results) - bad} load and give NumPy's results under {len(SCHEDULES)} schedules")


if __name__ == "__main__":
    main()
