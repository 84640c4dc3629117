"""Missed mutants that no launch, or not the one of their case, can tell from the kernel: why, one by one.

Where a reason says that a comparison never meets its bound, the kernel was run with a trap there for equal operands; where it
says that a value is not read, with another value stored in its place.
"""

NEVER_EQUAL = "the two operands are never equal in this launch"
NOT_READ = "what is stored here is not read in this launch"
NOTHING_HANDED_ON = "the atomics hand on nothing but their own value; no other access relies on their order"
ONE_DEVICE = "the launch runs on one device, where .sys reaches no further than .gpu"
IN_SHARED = "the atomic is on shared memory, which no thread beyond the block reaches"
BOTH_GROUPS = "the copy falls into the next group, and every wait covers both groups"
WAITED_BEFORE = "the iteration before has waited for the same groups, and none was committed since"
TWO_WAITS = "the line before is the same wait"
NO_OVERLAP = "what is stored next lies elsewhere than the copies still under way, which bring zeros that nobody reads"
ZEROS = "the copy is of a tile beyond the matrices, whose zeros nobody reads"
LAST_BARRIER = "no memory of the block is used behind the barrier"
SET_BEFORE = "the register holds zero already"
INITIALISED = (
    "in a block alone the order of its threads makes an mbarrier known to copies: `fence.mbarrier_init` is no fence of "
    "proxies either, and Triton writes none"
)

EQUIVALENT = {
    "add_256/swap-buffers/437": "the two addends change places",
    "attention_sm_80/commit-before-copy/573": BOTH_GROUPS,
    "attention_sm_80/drop-barrier/595": NO_OVERLAP,
    "attention_sm_80/wait-after-barrier/594": NO_OVERLAP,
    "attention_sm_90/commit-before-copy/555": BOTH_GROUPS,
    "attention_sm_90/drop-proxy-fence/481": "the fence in line 219 covers the copies of both tiles, and nothing writes them in between",
    "bulk_load/drop-proxy-fence/426": INITIALISED,
    "bulk_ring/drop-proxy-fence/579": INITIALISED,
    "tensor_load/drop-proxy-fence/797": INITIALISED,
    "attention_sm_90/wait-after-barrier/583": NO_OVERLAP,
    "bitonic_shared/off-by-one-bound/696": NEVER_EQUAL,
    "bulk_load/drop-expect-tx/482": "the arrival expects 0 bytes; the line before expects those of the copy",
    "bulk_load/wrong-expect-tx/482": "the arrival expects 0 bytes, and half of them are 0",
    "bulk_ring/drop-guard/687": "threads that have no copies wait for none",
    "checked/drop-store/226": NOT_READ,
    "checked/swap-buffers/58": "both pointers, of an array's owners, are 0, and the kernel does not read them",
    "crc32_rows/off-by-one-bound/583": NEVER_EQUAL,
    "dot_kahan/change-barrier-count/909": "the block has two warps, of which the first alone adds behind the barrier above",
    "embedding_sm_80/wider-index/34": "the index is taken modulo 32, so the lanes change places and the row is the same",
    "filter_rows/off-by-one-bound/872": NEVER_EQUAL,
    "fp8_round_trip/drop-initialisation/981": SET_BEFORE,
    "histogram_sm_80/narrow-scope/76": IN_SHARED,
    "histogram_sm_80/narrow-scope/91": IN_SHARED,
    "histogram_sm_90/narrow-scope/76": IN_SHARED,
    "histogram_sm_90/narrow-scope/91": IN_SHARED,
    "hyperbolic64/off-by-one-bound/1373": NEVER_EQUAL,
    "layer_norm_sm_90/off-by-one-bound/161": NEVER_EQUAL,
    "library_pipeline/weaken-semantics/1500": "a fence that releases is enough before an atomic that acquires",
    "local_sort/drop-guard/442": "it changes one row of 50, where two numbers below the result, v[7], change places",
    "local_sort/drop-store/77": NOT_READ,
    "local_sort/next-element/1027": "v[4] and v[5] change places before the last number is put in, and only v[6] and v[7] decide about the result, v[7]",
    "locked_sum_sm_80/drop-barrier/131": LAST_BARRIER,
    "matmul_bf16_sm_90/off-by-one-bound/367": NEVER_EQUAL,
    "matmul_f16_sm_80/commit-before-copy/100": BOTH_GROUPS,
    "matmul_f16_sm_80/drop-copy-wait/331": WAITED_BEFORE,
    "matmul_f16_sm_80/drop-copy-wait/477": "the line behind is the same wait",
    "matmul_f16_sm_80/wait-after-barrier/331": WAITED_BEFORE,
    "matmul_f16_sm_80/wait-after-barrier/478": TWO_WAITS,
    "matmul_f16_sm_80/weaken-copy-wait/331": WAITED_BEFORE,
    "matmul_f16_sm_90/commit-before-copy/360": BOTH_GROUPS,
    "matmul_i8_sm_80/commit-before-copy/148": BOTH_GROUPS,
    "matmul_i8_sm_80/off-by-one-bound/140": NEVER_EQUAL,
    "matmul_i8_sm_80/wait-after-barrier/294": WAITED_BEFORE,
    "matmul_i8_sm_90/commit-before-copy/85": BOTH_GROUPS,
    "matmul_i8_sm_90/drop-copy/337": ZEROS,
    "matmul_tf32_sm_80/commit-before-copy/624": BOTH_GROUPS,
    "matmul_tf32_sm_80/drop-copy-wait/688": TWO_WAITS,
    "matmul_tf32_sm_80/wait-after-barrier/688": TWO_WAITS,
    "matmul_tf32_sm_80/wait-after-barrier/765": NO_OVERLAP,
    "matmul_tf32_sm_90/commit-before-copy/681": BOTH_GROUPS,
    "matmul_tf32_sm_90/drop-copy/665": ZEROS,
    "matmul_tf32_sm_90/off-by-one-bound/84": NEVER_EQUAL,
    "named_barriers/off-by-one-bound/2506": NEVER_EQUAL,
    "radix_block/drop-guard/956": "all lanes of the warp store the count that lane 0 stores: a note, ToleratedRace",
    "reduce_rows_sm_90/off-by-one-bound/58": NEVER_EQUAL,
    "roots64/off-by-one-bound/4459": NEVER_EQUAL,
    "scan_chained/drop-store/845": "the block has two warps, and the scan leaves the first sum, the only one that is read, as it was",
    "scopes/drop-fence/878": NOTHING_HANDED_ON,
    "scopes/drop-fence/904": NOTHING_HANDED_ON,
    "scopes/narrow-scope/878": ONE_DEVICE,
    "scopes/narrow-scope/885": ONE_DEVICE,
    "scopes/narrow-scope/904": NOTHING_HANDED_ON,
    "scopes/weaken-semantics/878": NOTHING_HANDED_ON,
    "scopes/weaken-semantics/885": NOTHING_HANDED_ON,
    "scopes/weaken-semantics/897": NOTHING_HANDED_ON,
    "scopes/weaken-semantics/904": NOTHING_HANDED_ON,
    "scopes/weaken-semantics/926": NOTHING_HANDED_ON,
    "sgemm_naive/drop-initialisation/61": "the register is set to zero again in line 67, before it is read",
    "softmax_online/off-by-one-bound/46": NEVER_EQUAL,
    "solve_4x4/drop-store/1281": NOT_READ,
    "stages_of_cp_async/off-by-one-bound/108": NEVER_EQUAL,
    "structures_by_value/drop-store/1273": NOT_READ,
    "sum_all_sm_80/drop-barrier/135": LAST_BARRIER,
    "sum_all_sm_80/weaken-semantics/132": NOTHING_HANDED_ON,
    "sum_all_sm_90/weaken-semantics/132": NOTHING_HANDED_ON,
    "ticket_lock/drop-warp-barrier/428": "the lock acquires and releases, which orders lanes too",
    "top_four/drop-store/2069": NOT_READ,
}
"""By the mutant's name in MUTANTS.md."""
