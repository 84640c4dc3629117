"""Mutation operators on PTX text: the mistakes that programmers make, made mechanically.

An operator takes a line of a kernel and its context, and gives the lines that may stand instead, each a mutant. What it
gives is PTX that still assembles. An operator's documentation is its definition.
"""

import re
from dataclasses import dataclass

OPERATORS = {}


@dataclass
class Context:
    """What an operator may look at besides the line: the kernel's lines, the line's index, the threads of a block."""

    lines: list
    at: int
    threads: int

    def next(self, pattern, within=12):
        """The index of the next line that matches, at most some lines on and not beyond a label or branch."""
        for i in range(self.at + 1, min(self.at + 1 + within, len(self.lines))):
            if re.search(r"^\s*(\$|@|bra|ret)", self.lines[i]):
                return None
            if re.search(pattern, self.lines[i]):
                return i
        return None


def operator(function):
    """Registers an operator under its name, with hyphens."""
    OPERATORS[function.__name__.replace("_", "-")] = function
    return function


DROPPED = "// dropped"


def dropped(line, pattern):
    return [DROPPED] if re.match(rf"\s*(@!?%\w+\s+)?{pattern}", line) else []


def replaced(line, pattern, by):
    """The line with its one match replaced, if it has one."""
    new = re.sub(pattern, by, line, count=1)
    return [new] if new != line else []


def parts(line):
    """The predicate, the opcode and the operands of an instruction."""
    found = re.match(r"\s*(@!?%\w+\s+)?([a-z][\w.:]*)\s+(.*);", line)
    return (found.group(1) or "", found.group(2), found.group(3)) if found else ("", "", "")


# Barriers.


@operator
def drop_barrier(line, context):
    """`bar.sync` or `barrier.sync` of the block is removed."""
    return dropped(line, r"bar(rier)?(\.cta)?\.sync\b")


@operator
def drop_warp_barrier(line, context):
    """`bar.warp.sync` is removed."""
    return dropped(line, r"bar\.warp\.sync\b")


@operator
def drop_cluster_wait(line, context):
    """`barrier.cluster.wait` is removed; the arrival stays."""
    return dropped(line, r"barrier\.cluster\.wait\b")


@operator
def change_barrier_id(line, context):
    """The number of a named barrier, one that is not 0, is another one at this place."""
    pattern = r"\b(bar(?:rier)?(?:\.cta)?\.(?:sync|arrive)(?:\.aligned)?\s+)([1-9]\d*)"
    return replaced(line, pattern, lambda m: m[1] + str(int(m[2]) ^ 3))


@operator
def change_barrier_count(line, context):
    """A barrier waits for a warp less, or, where the block has one warp, for one more."""
    count = context.threads - 32 if context.threads > 32 else 64
    if found := re.match(r"(\s*)(bar(?:rier)?(?:\.cta)?\.(?:sync|arrive)(?:\.aligned)?\s+\d+), (\d+);", line):
        return [f"{found[1]}{found[2]}, {max(32, int(found[3]) - 32)};"] if int(found[3]) > 32 else []
    return replaced(line, r"(bar(?:rier)?(?:\.cta)?\.sync(?:\.aligned)?\s+\d+);", rf"\1, {-(-count // 32) * 32};")


# Fences, scopes, semantics.


@operator
def drop_fence(line, context):
    """A memory fence (`membar`, `fence.acq_rel`, `fence.sc`, `fence.acquire`, `fence.release`) is removed."""
    return dropped(line, r"(membar\.(gl|cta|sys)|fence\.(acq_rel|sc|acquire|release)\.)")


@operator
def drop_proxy_fence(line, context):
    """`fence.proxy.async` or `fence.mbarrier_init` is removed."""
    return dropped(line, r"fence\.(proxy\.async|mbarrier_init)")


@operator
def narrow_scope(line, context):
    """The scope of a fence, an atomic, a load or a store is the next smaller one: system, device, (cluster,) block."""
    if re.search(r"\bmembar\.", line):
        return replaced(line, r"membar\.(sys|gl)", lambda m: "membar." + {"sys": "gl", "gl": "cta"}[m[1]])
    if not re.match(r"\s*(@!?%\w+\s+)?(fence|atom|red|ld|st)\.", line) or "proxy" in line or "mbarrier" in line:
        return []
    return replaced(line, r"\.(sys|gpu|cluster)\b", lambda m: {"sys": ".gpu", "gpu": ".cta", "cluster": ".cta"}[m[1]])


@operator
def weaken_semantics(line, context):
    """Acquire or release becomes relaxed, a sequentially consistent fence acquire-release, volatile plain."""
    if re.match(r"\s*fence\.sc\.", line):
        return replaced(line, r"fence\.sc", "fence.acq_rel")
    if re.match(r"\s*(@!?%\w+\s+)?(ld|st)\.volatile", line):
        return replaced(line, r"\.volatile", "")
    if not re.match(r"\s*(@!?%\w+\s+)?(atom|red|ld|st)\.", line):
        return []
    return replaced(line, r"\.(acquire|release|acq_rel)\b", ".relaxed")


@operator
def drop_atomic(line, context):
    """An atomic operation becomes a load, the operation, and a store."""
    predicate, opcode, operands = parts(line)
    fields = opcode.split(".")
    simple = {"add", "min", "max", "and", "or", "xor", "exch"}
    op = next((f for f in fields if f in simple), None)
    if fields[0] not in ("atom", "red") or op is None or re.search(r"vec|noftz|x2|\.v\d|b128", opcode):
        return []
    kind = fields[-1]
    space = next((f".{f}" for f in fields if f.startswith(("global", "shared"))), "")
    args = operands.split(", ")
    if len(args) != (3 if fields[0] == "atom" else 2):
        return []
    address, value = args[-2:]
    wide = "64" in kind
    old, new = ("%mutant_old", "%mutant_new")
    compute = f"mov.b{64 if wide else 32} {new}, {value};" if op == "exch" else f"{op}.{kind} {new}, {old}, {value};"
    declared = kind if kind.startswith("f") else f"b{64 if wide else 32}"
    result = f"{predicate}mov.b{64 if wide else 32} {args[0]}, {old}; " if fields[0] == "atom" and args[0] != "_" else ""
    return [
        f"{{ .reg .{declared} {old}, {new}; {predicate}ld{space}.{kind} {old}, {address}; {predicate}{compute} "
        f"{predicate}st{space}.{kind} {address}, {new}; {result}}}"
    ]


# Warps.


@operator
def shrink_mask(line, context):
    """The mask of a `.sync` instruction, all lanes, names the lower half only."""
    if not re.search(r"\b(shfl|vote|match|redux|bar\.warp)\.", line):
        return []
    return replaced(line, r", (-1|4294967295|0xffffffff|0xFFFFFFFF);", ", 65535;") or replaced(
        line, r"(bar\.warp\.sync\s+)(-1|4294967295|0x[fF]{8});", r"\g<1>65535;"
    )


# Asynchronous copies.


@operator
def drop_copy_wait(line, context):
    """The wait for groups of copies is removed."""
    return dropped(line, r"cp\.async\.(bulk\.)?(wait_group|wait_all)")


@operator
def weaken_copy_wait(line, context):
    """The wait leaves one group more in flight."""
    return replaced(line, r"(cp\.async\.(?:bulk\.)?wait_group(?:\.read)?\s+)(\d+);", lambda m: f"{m[1]}{int(m[2]) + 1};")


@operator
def wait_after_barrier(line, context):
    """The wait for groups of copies and the barrier behind it change places."""
    if not re.search(r"cp\.async\.(wait_group|wait_all)", line):
        return []
    barrier = context.next(r"bar(rier)?(\.cta)?\.sync\b")
    return [(context.lines[barrier].strip(), barrier, line.strip())] if barrier else []


@operator
def commit_before_copy(line, context):
    """A copy and the commit of its group behind it change places."""
    if not re.match(r"\s*(@!?%\w+\s+)?cp\.async\.(ca|cg|bulk\.global)", line):
        return []
    commit = context.next(r"cp\.async\.(bulk\.)?commit_group", within=25)
    if commit is None or any("cp.async.c" in l and "commit" not in l for l in context.lines[context.at + 1 : commit]):
        return []
    return [(context.lines[commit].strip(), commit, line.strip())]


@operator
def drop_copy(line, context):
    """An asynchronous copy is removed; its group or barrier stays."""
    return dropped(line, r"cp\.async\.(ca|cg|bulk\.(shared|global|tensor))")


# mbarriers.


@operator
def drop_expect_tx(line, context):
    """An arrival that expects bytes becomes a plain one; an expectation alone is removed."""
    if re.match(r"\s*(@!?%\w+\s+)?mbarrier\.expect_tx", line):
        return [DROPPED]
    return replaced(line, r"mbarrier\.arrive\.expect_tx((?:\.[\w:]+)*)(\s+\S+, \[[^\]]*\]), [^;]+;", r"mbarrier.arrive\1\2;")


@operator
def wrong_expect_tx(line, context):
    """Half of the bytes are expected."""
    found = re.match(r"(\s*)(@!?%\w+\s+)?(mbarrier\.(?:arrive\.)?expect_tx\S*\s+(?:\S+, )?\[[^\]]*\]), ([^;]+);", line)
    if not found:
        return []
    guard = found[2] or ""
    return [f"{{ .reg .b32 %mutant; {guard}shr.u32 %mutant, {found[4]}, 1; {guard}{found[3]}, %mutant; }}"]


@operator
def drop_arrive(line, context):
    """An arrival at an mbarrier is removed."""
    return dropped(line, r"mbarrier\.arrive\.(?!expect_tx)") or dropped(line, r"cp\.async\.mbarrier\.arrive")


@operator
def change_mbarrier_count(line, context):
    """An mbarrier is initialised with one arrival more."""
    found = re.match(r"(\s*)(@!?%\w+\s+)?(mbarrier\.init\S*\s+\[[^\]]*\]), ([^;]+);", line)
    if not found:
        return []
    guard = found[2] or ""
    return [f"{{ .reg .b32 %mutant; {guard}add.u32 %mutant, {found[4]}, 1; {guard}{found[3]}, %mutant; }}"]


@operator
def flip_parity(line, context):
    """A wait on an mbarrier is for the other parity."""
    found = re.match(r"(\s*)(@!?%\w+\s+)?(mbarrier\.(?:try|test)_wait\.parity\S*\s+[^,]+, \[[^\]]*\]), ([^,;]+)(.*);", line)
    if not found:
        return []
    guard = found[2] or ""
    return [f"{{ .reg .b32 %mutant; {guard}xor.b32 %mutant, {found[4]}, 1; {guard}{found[3]}, %mutant{found[5]}; }}"]


@operator
def drop_mbarrier_wait(line, context):
    """A wait on an mbarrier succeeds at once."""
    found = re.match(r"(\s*)(@!?%\w+\s+)?mbarrier\.(?:try|test)_wait\S*\s+([^,]+),", line)
    return [f"{found[1]}{found[2] or ''}setp.eq.u32 {found[3]}, 0, 0;"] if found else []


# Indices, bounds, operands.


@operator
def off_by_one_bound(line, context):
    """A comparison of integers takes in, or leaves out, the bound: `lt` and `le`, `gt` and `ge` change places."""
    other = {"lt": "le", "le": "lt", "gt": "ge", "ge": "gt", "lo": "ls", "ls": "lo", "hi": "hs", "hs": "hi"}
    return replaced(line, r"setp\.(lt|le|gt|ge|lo|ls|hi|hs)(?=(\.\w+)*\.[su](16|32|64)\b)", lambda m: f"setp.{other[m[1]]}")


@operator
def next_element(line, context):
    """An access to global, shared or local memory is to the element behind."""
    found = re.search(r"\b(ld|st)\.(?:[\w:]+\.)*?(global|shared|local)(?:::cta|::cluster)?\.(?:[\w:]+\.)*?(?:v([248])\.)?[bsuf](8|16|32|64)\b", line)
    if not found or ".param" in line:
        return []
    size = int(found[3] or 1) * int(found[4]) // 8
    return replaced(line, r"\[(%\w+|\w+)(?:\+(-?\d+))?\]", lambda m: f"[{m[1]}+{int(m[2] or 0) + size}]")


@operator
def wider_elements(line, context):
    """An index is multiplied by twice the size of an element."""
    return replaced(line, r"(mul\.wide\.[su]32\s+%\w+, %\w+, )(2|4|8|16);", lambda m: f"{m[1]}{int(m[2]) * 2};") or replaced(
        line, r"(shl\.b(?:32|64)\s+%\w+, %\w+, )([1-4]);", lambda m: f"{m[1]}{int(m[2]) + 1};"
    )


@operator
def wider_index(line, context):
    """The index of a thread or block, as the program reads it, is one too great."""
    found = re.match(r"\s*mov\.u32\s+(%\w+), (%(?:tid|ctaid)\.[xyz]);", line)
    return [f"{line.strip()} add.u32 {found[1]}, {found[1]}, 1;"] if found else []


@operator
def swap_buffers(line, context):
    """Two pointers among the parameters, read one after another, change places."""
    pattern = r"(ld\.param\.[bu]64\s+%\w+, )(\[\w+\]);"
    mine = re.search(pattern, line)
    other = context.next(pattern, within=8)
    if not mine or other is None:
        return []
    its = re.search(pattern, context.lines[other])
    return [(f"{mine[1]}{its[2]};", other, f"{its[1]}{mine[2]};")]


@operator
def drop_store(line, context):
    """A store to global, shared or local memory is removed."""
    return dropped(line, r"st\.(?!param|async)")


@operator
def drop_initialisation(line, context):
    """A register is not set to its first value, a constant."""
    return dropped(line, r"mov\.[bfsu](16|32|64)\s+%\w+, (-?\d+|0[fd][0-9A-Fa-f]+);")


@operator
def drop_guard(line, context):
    """A conditional branch forward is never taken, so that what it guards runs always."""
    found = re.match(r"\s*@!?%\w+\s+bra(?:\.uni)?\s+(\S+);", line)
    if not found or not any(l.strip() == f"{found[1]}:" for l in context.lines[context.at :]):
        return []
    return [DROPPED]
