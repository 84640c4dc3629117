//! Tests of the messages of launch contracts: the argument, its value, and the required value.

use ptx_gen::{AnyKernel, CpuArg, ShapeArg};
use warpwright_kernels::pipeline::{Plan, Project, ProjectOutput};
use warpwright_kernels::{ALL, Format, Variant};

use ShapeArg::{Len, Scalar};

/// A kernel, a change of one argument of its first case, and the whole message.
const REFUSED: &[(&str, &str, ShapeArg, &str)] = &[
    (
        "rms_norm_256",
        "n",
        Scalar(6),
        "n is 6, must be a positive multiple of 4",
    ),
    (
        "rms_norm_256",
        "n",
        Scalar(0),
        "n is 0, must be a positive multiple of 4",
    ),
    (
        "rms_norm_256",
        "x",
        Len(7),
        "x has 7 elements, must have rows * n = 4",
    ),
    (
        "rms_norm_256",
        "w",
        Len(5),
        "w has 5 elements, must have n = 4",
    ),
    (
        "rms_norm_256",
        "y",
        Len(8),
        "y has 8 elements, must have rows * n = 4",
    ),
    (
        "rms_norm_256",
        "x",
        Len(0),
        "y has 4 elements, must have rows * n = 0",
    ),
    (
        "rms_norm_256",
        "n",
        Len(4),
        "argument n is a u32 value, not a buffer",
    ),
    (
        "rms_norm_256",
        "x",
        Scalar(4),
        "argument x is a buffer of f32",
    ),
    (
        "matmul_append_128_interleaved_q4_k_64_pairs",
        "angles",
        Len(767),
        "angles has 767 elements, must have 768 to 2147483648",
    ),
    (
        "matmul_append_128_interleaved_q4_k_64_pairs",
        "angle_first",
        Scalar(129),
        "angle_first is 129, must be 0 to 128",
    ),
    (
        "matmul_append_128_interleaved_q4_k_64_pairs",
        "y_first",
        Scalar(64),
        "rows 64 to 192 are not heads of the 384 rows",
    ),
    (
        "matmul_append_128_interleaved_q4_k_64_pairs",
        "heads",
        Scalar(2),
        "y_rows is 384, must be (heads + 2 * kv_heads) * head_dim = 512",
    ),
    (
        "matmul_append_128_interleaved_q4_k_64_pairs",
        "k_cache",
        Len(5),
        "k_cache has 5 elements, must have cache_pages * kv_heads * 64 * head_dim = 73728",
    ),
    (
        "matmul_append_128_interleaved_q4_k_64_pairs",
        "bias",
        Len(1),
        "bias has 1 elements, must have (heads + 2 * kv_heads) * head_dim = 0",
    ),
    (
        "matmul_append_128_half_split_bias_q6_k_128",
        "y_first",
        Scalar(0),
        "rows from 0 on, of which values begin at 384, in the order RowOrder { per: 1, stride: 16, step: 1, delta: 8 }",
    ),
    (
        "matmul_append_128_interleaved_q4_k_64_pairs_k2_and_q6_k_64_k3",
        "unit2",
        Len(1),
        "the second matmul: unit has 1 elements, must have rows = 128",
    ),
    (
        "matmul_append_128_interleaved_q4_k_64_pairs_k2_and_q6_k_64_k3",
        "rows2",
        Scalar(0),
        "the second matmul: rows is 0, must be a positive multiple of 16",
    ),
    (
        "matmul_append_128_interleaved_q4_k_64_pairs_k2_and_q6_k_64_k3",
        "partials2",
        Len(0),
        "the second matmul: partials has 0 elements, must have 24576 to 2147483648",
    ),
    (
        "matmul_append_128_interleaved_q4_k_64_pairs_k2_and_q6_k_64_k3",
        "tickets",
        Len(0),
        "the first matmul: tickets has 0 elements, must have 24 to 2147483648",
    ),
    (
        "matmul_add_q4_k_64",
        "q",
        Len(1),
        "the epilogue appends nothing, and is given 1 elements",
    ),
    (
        "embed_q4_k",
        "state",
        Len(1),
        "state has 1 elements, must have 8",
    ),
    (
        "embed_q4_k",
        "n",
        Scalar(128),
        "n is 128, must be a positive multiple of 256",
    ),
    (
        "embed_q4_k",
        "y",
        Len(255),
        "y has 255 elements, must have n = 256",
    ),
    (
        "embed_q4_k",
        "vocab",
        Scalar(6),
        "table has 720 bytes, must have 6 rows of 256 Q4_K weights, 144 bytes each",
    ),
    (
        "gemv_f16",
        "n",
        Scalar(3),
        "n is 3, must be a positive multiple of 4",
    ),
    (
        "gemv_f16",
        "n",
        Scalar(1 << 30),
        "n is 1073741824, must be 1 to 536870912",
    ),
    ("gemv_f16", "x", Len(5), "x has 5 elements, must have n = 4"),
    (
        "gemv_f16",
        "y",
        Len(2),
        "y has 2 elements, must have rows = 1",
    ),
    (
        "gemv_q6_k",
        "w",
        Len(209),
        "w has 209 bytes, must have 1 rows of 256 Q6_K weights, 210 bytes each",
    ),
    (
        "gemv_add_q8_0",
        "n",
        Scalar(16),
        "n is 16, must be a positive multiple of 32",
    ),
    (
        "gemv_bias_q8_0",
        "bias",
        Len(0),
        "bias has 0 elements, must have rows = 1",
    ),
    (
        "project_q4_k_2x4_first_prefetch6",
        "rows",
        Scalar(8),
        "rows is 8, must be a positive multiple of 16",
    ),
    (
        "project_q4_k_2x4_first_prefetch6",
        "x",
        Len(255),
        "x has 255 elements, must have n = 256",
    ),
    (
        "project_q4_k_2x4_first_prefetch6",
        "x_scale",
        Len(31),
        "x_scale has 31 elements, must have n / 8 = 32",
    ),
    (
        "project_q4_k_2x4_first_prefetch6",
        "y",
        Len(17),
        "y has 17 elements, must have rows = 16",
    ),
    (
        "project_q4_k_2x4_first_prefetch6",
        "w",
        Len(2303),
        "w has 2303 elements, must have 2304",
    ),
    (
        "project_q4_k_2x4_first_prefetch6",
        "progress",
        Len(0),
        "progress has 0 elements, must have blocks = 2",
    ),
    (
        "project_q4_k_2x4_first_prefetch6",
        "max_row_blocks",
        Scalar(0),
        "max_row_blocks is 0, must be at least 1",
    ),
    (
        "project_q4_k_2x4_first_prefetch6",
        "stages",
        Scalar(3),
        "stages is 3, must be a multiple of 4 up to 32",
    ),
    (
        "project_q4_k_2x4_first_prefetch6",
        "blocks",
        Scalar(0),
        "blocks is 0, must be at least 1 and few enough to count in 32 bits",
    ),
    (
        "project_q4_k_2x4_first_batch_8",
        "x",
        Len(256),
        "x has 256 elements, must have batch * n = 2048",
    ),
    (
        "head_q6_k_2x4_first_batch_8",
        "state",
        Len(8),
        "state has 8 elements, must have 64",
    ),
    (
        "split_prompt_8",
        "batch_state",
        Len(8),
        "batch_state has 8 elements, must have 64",
    ),
    (
        "split_prompt_8",
        "prompt",
        Len(1),
        "prompt has 1 elements, must have ctx = 30",
    ),
    (
        "gate_up_q8_0_2x4_first",
        "rows",
        Scalar(12),
        "rows is 12, must be a positive multiple of 8",
    ),
    (
        "head_q6_k_2x4_first",
        "ticket",
        Len(2),
        "ticket has 2 elements, must have 1",
    ),
    (
        "swiglu_256",
        "n",
        Scalar(3),
        "n is 3, must be a positive multiple of 4",
    ),
    (
        "swiglu_256",
        "gate",
        Len(3),
        "gate has 3 elements, must have n = 4",
    ),
    (
        "swiglu_256",
        "up",
        Len(3),
        "up has 3 elements, must have n = 4",
    ),
    (
        "swiglu_256",
        "y",
        Len(3),
        "y has 3 elements, must have n = 4",
    ),
    (
        "rope_half_split",
        "state",
        Len(4),
        "state has 4 elements, must have 8",
    ),
    (
        "rope_half_split",
        "heads",
        Scalar(0),
        "heads is 0, must be 1 to 65536",
    ),
    (
        "rope_half_split",
        "kv_heads",
        Scalar(0),
        "kv_heads is 0, must be 1 to 65536",
    ),
    (
        "rope_half_split",
        "ctx",
        Scalar(0),
        "ctx is 0, must be 1 to 16777216",
    ),
    (
        "rope_half_split",
        "rope_dim",
        Scalar(63),
        "rope_dim is 63, must be a positive multiple of 2",
    ),
    (
        "rope_half_split",
        "rope_dim",
        Scalar(66),
        "rope_dim is 66, must be at most head_dim = 64",
    ),
    (
        "rope_half_split",
        "freq",
        Len(32),
        "freq has 32 elements, must have rope_dim = 64",
    ),
    (
        "rope_half_split",
        "q",
        Len(64),
        "q has 64 elements, must have heads * head_dim = 192",
    ),
    (
        "rope_half_split",
        "k",
        Len(63),
        "k has 63 elements, must have kv_heads * head_dim = 64",
    ),
    (
        "rope_half_split",
        "v",
        Len(65),
        "v has 65 elements, must have kv_heads * head_dim = 64",
    ),
    (
        "rope_half_split",
        "k_cache",
        Len(1),
        "k_cache has 1 elements, must have ceil(ctx / 64) * kv_heads * 64 * head_dim = 4096",
    ),
    (
        "rope_half_split",
        "v_cache",
        Len(1),
        "v_cache has 1 elements, must have ceil(ctx / 64) * kv_heads * 64 * head_dim = 4096",
    ),
    (
        "attention_64_2",
        "kv_heads",
        Scalar(3),
        "kv_heads is 3, must be 1 to 2",
    ),
    (
        "attention_64_2",
        "kv_heads",
        Scalar(2),
        "heads / kv_heads is 1, must be a positive multiple of 2",
    ),
    (
        "attention_64_2",
        "splits",
        Scalar(0),
        "splits is 0, must be 1 to 8192",
    ),
    (
        "attention_64_2",
        "splits",
        Scalar(9000),
        "splits is 9000, must be 1 to 8192",
    ),
    (
        "attention_64_2",
        "ctx",
        Scalar(65),
        "k_cache has 4096 elements, must have ceil(ctx / 64) * kv_heads * 64 * head_dim = 8192",
    ),
    (
        "attention_64_2",
        "q",
        Len(64),
        "q has 64 elements, must have heads * head_dim = 128",
    ),
    (
        "attention_64_2",
        "partials",
        Len(0),
        "partials has 0 elements, must have heads * splits * (head_dim + 2) = 132",
    ),
    (
        "attention_64_2",
        "heads",
        Scalar(1 << 26),
        "heads * head_dim is 4294967296, must be at most 2147483648",
    ),
    (
        "attention_pipelined_128_4_first",
        "heads",
        Scalar(5),
        "heads is 5, must be kv_heads * queries = 4",
    ),
    (
        "attention_pipelined_128_4_first",
        "kv_heads",
        Scalar(0),
        "kv_heads is 0, must be 1 to 65536",
    ),
    (
        "attention_pipelined_128_4_first",
        "splits",
        Scalar(0),
        "splits is 0, must be 1 to 4096",
    ),
    (
        "attention_pipelined_128_4_first",
        "ticket",
        Len(2),
        "ticket has 2 elements, must have kv_heads * groups * 8 = 8",
    ),
    (
        "attention_pipelined_128_4_first",
        "blocks",
        Scalar(0),
        "blocks is 0, must be 1 to 65536",
    ),
    (
        "attention_pipelined_128_4_first",
        "shared",
        Scalar(9),
        "shared is 9, must be 109312 to 115712",
    ),
    (
        "attention_combine_64",
        "splits",
        Scalar(0),
        "splits is 0, must be 1 to 8192",
    ),
    (
        "attention_combine_64",
        "heads",
        Scalar(2),
        "partials has 66 elements, must have heads * splits * (head_dim + 2) = 132",
    ),
    (
        "attention_combine_64",
        "y",
        Len(63),
        "y has 63 elements, must have heads * head_dim = 64",
    ),
    (
        "argmax_blocks_256",
        "n",
        Scalar(2),
        "x has 1 elements, must have n = 2",
    ),
    (
        "argmax_blocks_256",
        "value",
        Len(0),
        "the length of value is 0, must be 1 to 65536",
    ),
    (
        "argmax_blocks_256",
        "index",
        Len(2),
        "index has 2 elements, must have the length of value = 1",
    ),
    (
        "argmax_final",
        "blocks",
        Scalar(0),
        "blocks is 0, must be 1 to 65536",
    ),
    (
        "argmax_final",
        "value",
        Len(2),
        "value has 2 elements, must have blocks = 1",
    ),
    (
        "argmax_final",
        "index",
        Len(2),
        "index has 2 elements, must have blocks = 1",
    ),
    (
        "argmax_final",
        "token",
        Len(2),
        "token has 2 elements, must have 1",
    ),
    (
        "advance",
        "ctx",
        Scalar(0),
        "ctx is 0, must be 1 to 16777216",
    ),
    (
        "advance",
        "token",
        Len(0),
        "token has 0 elements, must have 1",
    ),
    (
        "advance",
        "prompt",
        Len(5),
        "prompt has 5 elements, must have ctx = 6",
    ),
    (
        "advance",
        "stop",
        Len(2),
        "stop has 2 elements, must have at least stops = 3",
    ),
    (
        "advance",
        "state",
        Len(7),
        "state has 7 elements, must have 8",
    ),
    (
        "advance",
        "out",
        Len(5),
        "out has 5 elements, must have ctx = 6",
    ),
    (
        "pack_q8_0",
        "n",
        Scalar(128),
        "n is 128, must be a positive multiple of 256",
    ),
    (
        "pack_q8_0",
        "row_blocks",
        Scalar(0),
        "row_blocks is 0, must be a positive multiple of 1",
    ),
    (
        "pack_q8_0",
        "row_blocks",
        Scalar(1 << 30),
        "row_blocks is 1073741824, must be at most 134217728 for n = 256",
    ),
    (
        "pack_q8_0",
        "per",
        Scalar(2),
        "row_blocks is 1, must be a positive multiple of 2",
    ),
    (
        "pack_q8_0",
        "delta",
        Scalar(9),
        "stride is 16, must be above (8 * per - 1) * step + delta = 16",
    ),
    (
        "pack_q8_0",
        "lo",
        Len(272),
        "lo has 272 bytes, must have 16 rows of 272 bytes each",
    ),
    (
        "pack_q8_0",
        "hi",
        Len(0),
        "hi has 0 bytes, must have 16 rows of 272 bytes each",
    ),
    (
        "pack_q8_0",
        "y",
        Len(4096),
        "y has 4096 bytes, must have 1 row blocks of 4352 bytes each",
    ),
    (
        "head_norm",
        "head_dim",
        Scalar(3),
        "head_dim is 3, must be a positive multiple of 2",
    ),
    (
        "head_norm",
        "head_dim",
        Scalar(258),
        "head_dim is 258, must be 2 to 256",
    ),
    (
        "head_norm",
        "x",
        Len(8),
        "x has 8 elements, must have (heads + 2 * kv_heads) * head_dim = 1024",
    ),
    (
        "head_norm",
        "gamma",
        Len(128),
        "gamma has 128 elements, must have 2 * head_dim = 256",
    ),
    (
        "rotate_tokens_80_half_split_bias",
        "bias",
        Len(0),
        "bias has 0 elements, must have (heads + 2 * kv_heads) * head_dim = 320",
    ),
    (
        "rotate_tokens_64_interleaved",
        "bias",
        Len(256),
        "bias has 256 elements, must have (heads + 2 * kv_heads) * head_dim = 0",
    ),
    (
        "rotate_tokens_64_interleaved",
        "x",
        Len(256),
        "x has 256 elements, must have capacity * (heads + 2 * kv_heads) * head_dim = 2048",
    ),
    (
        "rotate_tokens_64_interleaved",
        "freq",
        Len(32),
        "freq has 32 elements, must have head_dim = 64",
    ),
    (
        "rotate_tokens_64_interleaved",
        "tokens",
        Scalar(9),
        "tokens is 9, must be 1 to 8",
    ),
    (
        "rotate_tokens_64_interleaved",
        "tokens",
        Scalar(2),
        "state has 8 elements, must have 8 for each row, and at least tokens = 2 rows",
    ),
    (
        "rotate_tokens_64_interleaved",
        "sequences",
        Scalar(0),
        "sequences is 0, must be 1 to 65536",
    ),
    (
        "rotate_tokens_64_interleaved",
        "max_pages",
        Scalar(1 << 19),
        "max_pages is 524288, must be 1 to 262144",
    ),
    (
        "rotate_tokens_64_interleaved",
        "pages",
        Len(8),
        "pages has 8 elements, must have sequences * max_pages = 9",
    ),
    (
        "rotate_tokens_64_interleaved",
        "cache_pages",
        Scalar(0),
        "cache_pages is 0, must be 1 to 16777216",
    ),
    (
        "rotate_tokens_64_interleaved",
        "v_cache",
        Len(0),
        "v_cache has 0 elements, must have cache_pages * kv_heads * 64 * head_dim = 36864",
    ),
    (
        "prompt_attention_64_128_8",
        "kv_heads",
        Scalar(3),
        "kv_heads is 3, must be 1 to 2",
    ),
    (
        "prompt_attention_64_64_32",
        "heads",
        Scalar(3),
        "heads * head_dim is 192, must be a positive multiple of 128",
    ),
    (
        "prompt_attention_64_128_8",
        "capacity",
        Scalar(9),
        "capacity is 9, must be a positive multiple of 8",
    ),
    (
        "prompt_attention_64_128_8",
        "item_count",
        Scalar(0),
        "item_count is 0, must be 1 to 65535",
    ),
    (
        "prompt_attention_64_128_8",
        "items",
        Len(3),
        "items has 3 elements, must have item_count * 4 = 4",
    ),
    (
        "prompt_attention_64_128_8",
        "pages",
        Len(2),
        "pages has 2 elements, must have sequences * max_pages = 1",
    ),
    (
        "chunk_items_64",
        "tokens",
        Scalar(0),
        "tokens is 0, must be 1 to 16777216",
    ),
    (
        "chunk_items_64",
        "state",
        Len(12),
        "state has 12 elements, must have 8 for each row",
    ),
    (
        "chunk_items_64",
        "items",
        Len(8),
        "items has 8 elements, must have 4",
    ),
    (
        "prompt_attention_64_128_8",
        "y_scale",
        Len(1),
        "y_scale has 1 elements, must have capacity = 8",
    ),
    (
        "batch_attention_64_1_8",
        "state",
        Len(7),
        "state has 7 elements, must have at least rows * 8 = 8",
    ),
    (
        "batch_attention_64_7_32",
        "heads",
        Scalar(3),
        "heads is 3, must be kv_heads * queries = 14",
    ),
    (
        "batch_attention_64_1_8",
        "pages",
        Len(0),
        "pages has 0 elements, must have sequences * max_pages = 1",
    ),
    (
        "batch_attention_64_1_8",
        "rows",
        Scalar(9),
        "rows is 9, must be 1 to 8",
    ),
    (
        "batch_attention_64_1_8",
        "max_pages",
        Scalar(0),
        "max_pages is 0, must be 1 to 262144",
    ),
    (
        "batch_attention_64_1_8",
        "capacity",
        Scalar(9),
        "capacity is 9, must be a positive multiple of 8",
    ),
    (
        "batch_attention_64_1_8",
        "v_cache",
        Len(4096),
        "v_cache has 4096 elements, must have cache_pages * kv_heads * 64 * head_dim = 12288",
    ),
    (
        "batch_attention_64_1_8",
        "splits",
        Scalar(2),
        "partials has 1 elements, must have at least rows * heads * splits * (head_dim + 2) = 132",
    ),
    (
        "batch_attention_64_1_8",
        "ticket",
        Len(0),
        "ticket has 0 elements, must have at least rows * kv_heads * groups = 1",
    ),
    (
        "batch_lora_shrink",
        "ranks",
        Scalar(6),
        "ranks is 6, must be a positive multiple of 4",
    ),
    (
        "batch_lora_add",
        "rank",
        Scalar(260),
        "rank is 260, must be 1 to 256",
    ),
    (
        "batch_lora_append_64_interleaved",
        "u",
        Len(2),
        "u has 2 elements, must have at least tokens * 3 * rank = 24",
    ),
    (
        "gate_tokens_32",
        "squares",
        Len(3),
        "squares has 3 elements, must have capacity = 8",
    ),
    (
        "gather_rows",
        "n",
        Scalar(6),
        "n is 6, must be a positive multiple of 4",
    ),
    (
        "gather_rows",
        "count",
        Scalar(3),
        "rows has 2 elements, must have at least count = 3",
    ),
    (
        "gather_rows",
        "y",
        Len(3),
        "y has 3 elements, must have at least count * n = 4",
    ),
    (
        "choose_tokens",
        "vocab",
        Scalar(6),
        "vocab is 6, must be a positive multiple of 4",
    ),
    (
        "choose_tokens",
        "count",
        Scalar(2),
        "capacity is 1, must be 2 to 16777216",
    ),
    (
        "choose_tokens",
        "blocks",
        Scalar(0),
        "blocks is 0, must be 1 to 65536",
    ),
    (
        "choose_tokens",
        "stops",
        Scalar(36),
        "stop has 35 elements, must have at least stops = 36",
    ),
    (
        "choose_tokens",
        "state",
        Len(8),
        "state has 8 elements, must have states * 8 = 24",
    ),
    (
        "choose_tokens",
        "out",
        Len(9),
        "out has 9 elements, must have sequences * max_tokens = 36",
    ),
    (
        "embed_tiled_f16",
        "n",
        Scalar(64),
        "n is 64, must be a positive multiple of 128",
    ),
    (
        "embed_tiled_f16",
        "vocab",
        Scalar(17),
        "vocab is 17, must be a positive multiple of 16",
    ),
    (
        "embed_tiled_f16",
        "table",
        Len(4095),
        "table has 4095 bytes, must have 16 rows of 128 F16 weights, 256 bytes each",
    ),
    (
        "embed_tiled_f16",
        "rope_dim",
        Scalar(3),
        "rope_dim is 3, must be a positive multiple of 2",
    ),
    (
        "embed_tiled_f16",
        "freq",
        Len(4),
        "freq has 4 elements, must have rope_dim = 2",
    ),
    (
        "embed_tiled_f16",
        "angles",
        Len(1),
        "angles has 1 elements, must have rope_dim = 2",
    ),
    (
        "embed_tiled_f16",
        "blocks",
        Scalar(0),
        "blocks is 0, must be 1 to 65536",
    ),
    (
        "embed_rows_q4_k",
        "n",
        Scalar(128),
        "n is 128, must be a positive multiple of 256",
    ),
    (
        "embed_rows_q4_k",
        "state",
        Len(1),
        "state has 1 elements, must have 8",
    ),
    (
        "embed_rows_q4_k",
        "y",
        Len(255),
        "y has 255 elements, must have n = 256",
    ),
    (
        "read_512_8",
        "n",
        Scalar(4096),
        "n is 4096, must be a positive multiple of 16384",
    ),
    (
        "read_512_8",
        "x",
        Len(3),
        "x has 3 elements, must have n = 16384",
    ),
    (
        "read_512_8",
        "y",
        Len(0),
        "the length of y is 0, must be 1 to 65536",
    ),
    (
        "multiply_mma",
        "w",
        Len(3),
        "w has 3 elements, must have 128 * depth = 4096",
    ),
    (
        "multiply_wgmma",
        "x",
        Len(3),
        "x has 3 elements, must have tokens * depth = 16384",
    ),
    (
        "multiply_mma",
        "y",
        Len(100),
        "the length of y is 100, must be a positive multiple of 256",
    ),
    (
        "multiply_wgmma",
        "y",
        Len(0),
        "the length of y is 0, must be a positive multiple of 256",
    ),
];

fn named(name: &str) -> &'static dyn Variant {
    *ALL.iter()
        .find(|kernel| kernel.name() == name)
        .unwrap_or_else(|| panic!("no kernel {name}"))
}

fn shapes(kernel: &dyn Variant) -> Vec<ShapeArg> {
    kernel.cases(1)[0].args.iter().map(CpuArg::shape).collect()
}

#[test]
fn contracts_say_what_is_wrong() {
    for &(name, argument, changed, message) in REFUSED {
        let kernel = named(name);
        let mut shapes = shapes(kernel);
        let position = kernel.params().iter().position(|p| p.name == argument);
        shapes[position.unwrap_or_else(|| panic!("{name} has no {argument}"))] = changed;
        let error = kernel
            .geometry(&shapes)
            .map(|g| format!("{argument} = {changed:?} gives {g:?}"));
        let error = error.unwrap_or_else(|e| e.to_string());
        assert_eq!(error, format!("{name}: {message}"));
    }
}

#[test]
fn a_missing_argument_is_refused() {
    let kernel = named("advance");
    let shapes = &shapes(kernel)[1..];
    assert_eq!(
        kernel.geometry(shapes).unwrap_err().to_string(),
        "advance: takes 7 arguments, not 6"
    );
}

#[test]
fn all_cases_meet_their_contract() {
    for kernel in ALL.iter() {
        for case in kernel.cases(1) {
            let shapes: Vec<_> = case.args.iter().map(CpuArg::shape).collect();
            kernel
                .geometry(&shapes)
                .unwrap_or_else(|e| panic!("{}: {e}", case.label));
        }
    }
}

#[test]
fn names_are_unique_and_cases_reproducible() {
    let mut names: Vec<_> = ALL.iter().map(|kernel| kernel.name()).collect();
    names.sort();
    assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
    for kernel in ALL.iter() {
        for (first, second) in kernel.cases(7).iter().zip(&kernel.cases(7)) {
            // NaN differs from itself, but its text does not.
            let same = first.args == second.args || format!("{first:?}") == format!("{second:?}");
            assert!(same, "{} {}", kernel.name(), first.label);
        }
    }
}

#[test]
fn a_kernel_that_profiles_has_room_for_every_stamp() {
    let plan = Plan {
        profile: true,
        ..Plan::DEFAULT
    };
    let kernel = Project {
        format: Format::Q4_K,
        output: ProjectOutput::Residual,
        plan,
    };
    let shapes: Vec<ShapeArg> = kernel.cases(1)[0].args.iter().map(CpuArg::shape).collect();
    let refused = kernel
        .geometry(&shapes)
        .expect_err("one element is too few")
        .what;
    assert_eq!(
        refused,
        "timestamps has 1 elements, must have at least blocks * 8 = 16"
    );
}
