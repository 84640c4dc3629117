//! The `.version` and `.target` that each instruction form needs.
//!
//! The table is written from the PTX ISA manual. It shares nothing with the tables of the PTX
//! generator, so each checks the other.

/// The `.version` and `.target` of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) version: (u32, u32),
    /// The number of the architecture, for example 80 for `sm_80`.
    pub(crate) sm: u32,
    /// The suffix of the architecture: `a`, `f` or empty.
    pub(crate) suffix: String,
    pub(crate) name: String,
}

/// The lowest `.version` of each target.
const TARGETS: &[(&str, (u32, u32))] = &[
    ("10", (1, 0)),
    ("11", (1, 0)),
    ("12", (1, 2)),
    ("13", (1, 2)),
    ("20", (2, 0)),
    ("21", (2, 0)),
    ("30", (3, 0)),
    ("32", (4, 0)),
    ("35", (3, 1)),
    ("37", (4, 1)),
    ("50", (4, 0)),
    ("52", (4, 1)),
    ("53", (4, 2)),
    ("60", (5, 0)),
    ("61", (5, 0)),
    ("62", (5, 0)),
    ("70", (6, 0)),
    ("72", (6, 1)),
    ("75", (6, 3)),
    ("80", (7, 0)),
    ("86", (7, 1)),
    ("87", (7, 4)),
    ("88", (9, 0)),
    ("89", (7, 8)),
    ("90", (7, 8)),
    ("90a", (8, 0)),
    ("100", (8, 6)),
    ("100a", (8, 6)),
    ("100f", (8, 8)),
    ("101", (8, 6)),
    ("101a", (8, 6)),
    ("103", (8, 8)),
    ("103a", (8, 8)),
    ("103f", (8, 8)),
    ("110", (9, 0)),
    ("110a", (9, 0)),
    ("110f", (9, 0)),
    ("120", (8, 7)),
    ("120a", (8, 7)),
    ("120f", (8, 8)),
    ("121", (8, 8)),
    ("121a", (8, 8)),
    ("121f", (8, 8)),
];

/// The `.version`s that exist, as (major, highest minor).
const VERSIONS: &[(u32, u32)] = &[
    (1, 5),
    (2, 3),
    (3, 2),
    (4, 3),
    (5, 0),
    (6, 5),
    (7, 8),
    (8, 8),
    (9, 5),
];

/// A form: the opcode, the suffixes that must all be present, the lowest version and the lowest
/// target.
type Need = (&'static str, &'static [&'static str], (u32, u32), u32);

const NEEDS: &[Need] = &[
    ("dp4a", &[], (5, 0), 61),
    ("dp2a", &[], (5, 0), 61),
    ("szext", &[], (7, 6), 70),
    ("add", &[".u16x2"], (8, 0), 90),
    ("add", &[".s16x2"], (8, 0), 90),
    ("min", &[".u16x2"], (8, 0), 90),
    ("min", &[".s16x2"], (8, 0), 90),
    ("max", &[".u16x2"], (8, 0), 90),
    ("max", &[".s16x2"], (8, 0), 90),
    ("bmsk", &[], (7, 6), 70),
    ("min", &[".relu", ".s32"], (8, 0), 90),
    ("max", &[".relu", ".s32"], (8, 0), 90),
    ("tanh", &[".f32"], (7, 0), 75),
    ("min", &[".NaN", ".f32"], (7, 0), 80),
    ("max", &[".NaN", ".f32"], (7, 0), 80),
    ("add", &[".f16"], (4, 2), 53),
    ("add", &[".f16x2"], (4, 2), 53),
    ("sub", &[".f16"], (4, 2), 53),
    ("sub", &[".f16x2"], (4, 2), 53),
    ("mul", &[".f16"], (4, 2), 53),
    ("mul", &[".f16x2"], (4, 2), 53),
    ("fma", &[".f16"], (4, 2), 53),
    ("fma", &[".f16x2"], (4, 2), 53),
    ("ex2", &[".f16"], (7, 0), 75),
    ("ex2", &[".f16x2"], (7, 0), 75),
    ("tanh", &[".f16"], (7, 0), 75),
    ("tanh", &[".f16x2"], (7, 0), 75),
    ("fma", &[".relu"], (7, 0), 80),
    ("min", &[".f16"], (7, 0), 80),
    ("min", &[".f16x2"], (7, 0), 80),
    ("max", &[".f16"], (7, 0), 80),
    ("max", &[".f16x2"], (7, 0), 80),
    ("min", &[".bf16"], (7, 0), 80),
    ("min", &[".bf16x2"], (7, 0), 80),
    ("max", &[".bf16"], (7, 0), 80),
    ("max", &[".bf16x2"], (7, 0), 80),
    ("fma", &[".bf16"], (7, 0), 80),
    ("fma", &[".bf16x2"], (7, 0), 80),
    ("neg", &[".bf16"], (7, 0), 80),
    ("neg", &[".bf16x2"], (7, 0), 80),
    ("abs", &[".bf16"], (7, 0), 80),
    ("abs", &[".bf16x2"], (7, 0), 80),
    ("add", &[".bf16"], (7, 8), 90),
    ("add", &[".bf16x2"], (7, 8), 90),
    ("sub", &[".bf16"], (7, 8), 90),
    ("sub", &[".bf16x2"], (7, 8), 90),
    ("mul", &[".bf16"], (7, 8), 90),
    ("mul", &[".bf16x2"], (7, 8), 90),
    ("ex2", &[".bf16"], (7, 8), 90),
    ("ex2", &[".bf16x2"], (7, 8), 90),
    ("tanh", &[".bf16"], (7, 8), 90),
    ("tanh", &[".bf16x2"], (7, 8), 90),
    ("setp", &[".bf16"], (7, 8), 90),
    ("setp", &[".bf16x2"], (7, 8), 90),
    ("setp", &[".f16"], (4, 2), 53),
    ("setp", &[".f16x2"], (4, 2), 53),
    ("set", &[".bf16"], (7, 8), 90),
    ("set", &[".bf16x2"], (7, 8), 90),
    ("set", &[".f16"], (4, 2), 53),
    ("set", &[".f16x2"], (4, 2), 53),
    ("set", &[".u16"], (6, 5), 53),
    ("set", &[".s16"], (6, 5), 53),
    ("min", &[".xorsign"], (7, 2), 86),
    ("max", &[".xorsign"], (7, 2), 86),
    ("add", &[".f32x2"], (8, 6), 100),
    ("sub", &[".f32x2"], (8, 6), 100),
    ("mul", &[".f32x2"], (8, 6), 100),
    ("fma", &[".f32x2"], (8, 6), 100),
    ("neg", &[".ftz", ".f16"], (6, 0), 53),
    ("abs", &[".f16"], (6, 5), 53),
    ("abs", &[".f16x2"], (6, 5), 53),
    ("cvt", &[".f16x2", ".f32"], (7, 0), 80),
    ("cvt", &[".bf16x2", ".f32"], (7, 0), 80),
    ("cvt", &[".bf16"], (7, 0), 80),
    ("cvt", &[".f32", ".bf16"], (7, 1), 80),
    ("cvt", &[".rna", ".tf32"], (7, 0), 80),
    ("cvt", &[".relu"], (7, 0), 80),
    ("cvt", &[".rn", ".tf32"], (7, 8), 90),
    ("cvt", &[".rz", ".tf32"], (7, 8), 90),
    ("cvt", &[".rn", ".satfinite", ".tf32"], (8, 6), 100),
    ("cvt", &[".rz", ".satfinite", ".tf32"], (8, 6), 100),
    ("cvt", &[".satfinite"], (7, 8), 75),
    ("cvt", &[".e4m3x2"], (7, 8), 89),
    ("cvt", &[".e5m2x2"], (7, 8), 89),
    ("cvt", &[".e2m1x2"], (8, 6), 100),
    ("cvt", &[".e2m3x2"], (8, 6), 100),
    ("cvt", &[".e3m2x2"], (8, 6), 100),
    ("cvt", &[".ue8m0x2"], (8, 6), 100),
    ("cvt", &[".pack"], (6, 5), 72),
    ("cvt", &[".bf16", ".f16"], (7, 8), 90),
    ("cvt", &[".bf16", ".f64"], (7, 8), 90),
    ("cvt", &[".bf16", ".u8"], (7, 8), 90),
    ("cvt", &[".bf16", ".s8"], (7, 8), 90),
    ("cvt", &[".bf16", ".u16"], (7, 8), 90),
    ("cvt", &[".bf16", ".s16"], (7, 8), 90),
    ("cvt", &[".bf16", ".u32"], (7, 8), 90),
    ("cvt", &[".bf16", ".s32"], (7, 8), 90),
    ("cvt", &[".bf16", ".u64"], (7, 8), 90),
    ("cvt", &[".bf16", ".s64"], (7, 8), 90),
    ("ld", &[".relaxed"], (6, 0), 70),
    ("ld", &[".acquire"], (6, 0), 70),
    ("ld", &[".mmio"], (8, 2), 70),
    ("st", &[".mmio"], (8, 2), 70),
    ("st", &[".async"], (8, 1), 90),
    ("st", &[".relaxed"], (6, 0), 70),
    ("st", &[".release"], (6, 0), 70),
    ("ld", &[".L1::no_allocate"], (7, 4), 70),
    ("ld", &[".L1::evict_first"], (7, 4), 70),
    ("ld", &[".L1::evict_last"], (7, 4), 70),
    ("ld", &[".L1::evict_normal"], (7, 4), 70),
    ("ld", &[".L1::evict_unchanged"], (7, 4), 70),
    ("st", &[".L1::no_allocate"], (7, 4), 70),
    ("st", &[".L1::evict_first"], (7, 4), 70),
    ("st", &[".L1::evict_last"], (7, 4), 70),
    ("ld", &[".L2::64B"], (7, 4), 75),
    ("ld", &[".L2::128B"], (7, 4), 75),
    ("ld", &[".L2::256B"], (7, 4), 80),
    ("ld", &[".L2::cache_hint"], (7, 4), 80),
    ("st", &[".L2::cache_hint"], (7, 4), 80),
    ("ld", &[".L2::evict_first"], (8, 8), 100),
    ("ld", &[".L2::evict_last"], (8, 8), 100),
    ("st", &[".L2::evict_first"], (8, 8), 100),
    ("st", &[".L2::evict_last"], (8, 8), 100),
    ("ld", &[".v8"], (8, 8), 100),
    ("st", &[".v8"], (8, 8), 100),
    ("mov", &[".b128"], (8, 3), 70),
    ("ld", &[".b128"], (8, 3), 70),
    ("st", &[".b128"], (8, 3), 70),
    ("atom", &[".b128"], (8, 3), 90),
    ("ld", &[".shared::cta"], (7, 8), 30),
    ("st", &[".shared::cta"], (7, 8), 30),
    ("ld", &[".shared::cluster"], (7, 8), 90),
    ("st", &[".shared::cluster"], (7, 8), 90),
    ("prefetch", &[".L2::evict_last"], (7, 4), 80),
    ("createpolicy", &[], (7, 4), 80),
    ("applypriority", &[], (7, 4), 80),
    ("discard", &[], (7, 4), 80),
    ("match", &[], (6, 0), 70),
    ("activemask", &[], (6, 2), 30),
    ("nanosleep", &[], (6, 2), 70),
    ("redux", &[], (7, 0), 80),
    ("elect", &[], (8, 0), 90),
    ("fence", &[], (6, 0), 70),
    ("fence", &[".cluster"], (7, 8), 90),
    ("fence", &[".acquire"], (8, 6), 90),
    ("fence", &[".release"], (8, 6), 90),
    ("barrier", &[], (6, 0), 30),
    ("barrier", &[".cta"], (7, 8), 30),
    ("bar", &[".cta"], (7, 8), 30),
    ("griddepcontrol", &[], (7, 8), 90),
    ("atom", &[".add", ".f64"], (5, 0), 60),
    ("atom", &[".f16x2"], (6, 2), 60),
    ("atom", &[".f16"], (6, 3), 70),
    ("atom", &[".bf16x2"], (7, 8), 90),
    ("red", &[".bf16x2"], (7, 8), 90),
    ("atom", &[".bf16"], (7, 8), 90),
    ("red", &[".bf16"], (7, 8), 90),
    ("atom", &[".v2"], (8, 1), 90),
    ("atom", &[".v4"], (8, 1), 90),
    ("atom", &[".v8"], (8, 1), 90),
    ("red", &[".v2"], (8, 1), 90),
    ("red", &[".v4"], (8, 1), 90),
    ("red", &[".v8"], (8, 1), 90),
    ("atom", &[".L2::cache_hint"], (7, 4), 80),
    ("red", &[".L2::cache_hint"], (7, 4), 80),
    ("atom", &[".relaxed"], (6, 0), 70),
    ("atom", &[".acquire"], (6, 0), 70),
    ("atom", &[".release"], (6, 0), 70),
    ("atom", &[".acq_rel"], (6, 0), 70),
    ("red", &[".async"], (8, 1), 90),
    ("red", &[".async", ".release"], (8, 7), 100),
    ("red", &[".relaxed"], (6, 0), 70),
    ("red", &[".release"], (6, 0), 70),
    ("fence", &[".proxy", ".async"], (8, 0), 90),
    ("fence", &[".mbarrier_init"], (8, 0), 90),
    ("fence", &[".proxy", ".tensormap::generic"], (8, 3), 90),
    ("tensormap", &[], (8, 3), 90),
    ("tensormap", &[".swizzle_atomicity"], (8, 6), 100),
    ("cp", &[".async"], (7, 0), 80),
    ("cp", &[".L2::cache_hint"], (7, 4), 80),
    ("cp", &[".L2::64B"], (7, 4), 80),
    ("cp", &[".L2::128B"], (7, 4), 80),
    ("cp", &[".L2::256B"], (7, 4), 80),
    ("cp", &[".shared::cta"], (7, 8), 80),
    ("cp", &[".bulk"], (8, 0), 90),
    ("cp", &[".bulk", ".shared::cta"], (8, 6), 90),
    ("mbarrier", &[], (7, 0), 80),
    ("cp", &[".reduce"], (8, 0), 90),
    ("mbarrier", &[".parity"], (7, 1), 80),
    ("mbarrier", &[".shared::cta"], (7, 8), 80),
    ("mbarrier", &[".cluster"], (7, 8), 90),
    ("mbarrier", &[".try_wait"], (7, 8), 90),
    ("mbarrier", &[".expect_tx"], (8, 0), 90),
    ("mbarrier", &[".complete_tx"], (8, 0), 90),
    ("wgmma", &[], (8, 0), 90),
    ("wgmma", &[".sp"], (8, 2), 90),
    ("mma", &[], (6, 4), 70),
    ("mma", &[".sp"], (7, 1), 80),
    ("mma", &[".sp::ordered_metadata"], (8, 5), 80),
    ("mma", &[".m16n8k8"], (6, 5), 75),
    ("mma", &[".m16n8k8", ".bf16"], (7, 0), 80),
    ("mma", &[".m16n8k16"], (7, 0), 80),
    ("mma", &[".m16n8k32"], (7, 0), 80),
    ("mma", &[".m8n8k16"], (6, 5), 75),
    ("mma", &[".m8n8k32"], (6, 5), 75),
    ("mma", &[".m8n8k128"], (7, 0), 75),
    ("mma", &[".and", ".popc"], (7, 1), 80),
    ("mma", &[".m16n8k64"], (7, 0), 80),
    ("mma", &[".m16n8k128"], (7, 0), 80),
    ("mma", &[".m16n8k256"], (7, 0), 80),
    ("mma", &[".m16n8k4"], (7, 0), 80),
    ("mma", &[".m16n8k8", ".tf32"], (7, 0), 80),
    ("mma", &[".f64"], (7, 0), 80),
    ("mma", &[".m16n8k4", ".f64"], (7, 8), 90),
    ("mma", &[".m16n8k8", ".f64"], (7, 8), 90),
    ("mma", &[".m16n8k16", ".f64"], (7, 8), 90),
    ("mma", &[".e4m3"], (8, 4), 89),
    ("mma", &[".e5m2"], (8, 4), 89),
    ("mma", &[".e4m3", ".f16"], (8, 7), 89),
    ("mma", &[".e5m2", ".f16"], (8, 7), 89),
    ("mma", &[".e4m3", ".m16n8k16"], (8, 7), 89),
    ("mma", &[".e5m2", ".m16n8k16"], (8, 7), 89),
    ("wmma", &[], (6, 0), 70),
    ("wmma", &[".m32n8k16"], (6, 1), 70),
    ("wmma", &[".m8n32k16"], (6, 1), 70),
    ("wmma", &[".s8"], (6, 3), 72),
    ("wmma", &[".u8"], (6, 3), 72),
    ("wmma", &[".s4"], (6, 3), 75),
    ("wmma", &[".u4"], (6, 3), 75),
    ("wmma", &[".b1"], (6, 3), 75),
    ("wmma", &[".and", ".popc"], (7, 1), 80),
    ("wmma", &[".bf16"], (7, 0), 80),
    ("wmma", &[".tf32"], (7, 0), 80),
    ("wmma", &[".f64"], (7, 0), 80),
    ("getctarank", &[], (7, 8), 90),
    ("ldmatrix", &[], (6, 5), 75),
    ("stmatrix", &[], (7, 8), 90),
    ("movmatrix", &[], (7, 8), 75),
    ("mapa", &[], (7, 8), 90),
    ("barrier", &[".cluster"], (7, 8), 90),
    ("barrier", &[".cluster", ".relaxed"], (8, 0), 90),
    ("barrier", &[".cluster", ".release"], (8, 0), 90),
    ("barrier", &[".cluster", ".acquire"], (8, 0), 90),
    ("mbarrier", &[".shared::cluster"], (8, 0), 90),
    ("prefetch", &[".tensormap"], (8, 0), 90),
    ("cvta", &[".param"], (7, 7), 70),
    ("wgmma", &[".u8", ".s8"], (8, 4), 90),
    ("setmaxnreg", &[], (8, 0), 90),
    ("multimem", &[], (8, 1), 90),
];

/// Instructions that exist only on architecture-specific targets, whose name ends in a letter.
const SPECIFIC: &[&str] = &["setmaxnreg", "wgmma"];

/// Types whose conversions exist only on architecture-specific targets.
const SPECIFIC_TYPES: &[&str] = &[".e2m1x2", ".e2m3x2", ".e3m2x2", ".ue8m0x2"];

impl Target {
    /// Returns true if the lanes of a warp are scheduled independently, which holds from sm_70 on.
    pub(crate) fn schedules_lanes_independently(&self) -> bool {
        self.sm >= 70
    }

    /// Parses a target and checks that `version` supports it.
    pub(crate) fn new(version: (u32, u32), name: &str) -> Result<Target, String> {
        let known = VERSIONS
            .iter()
            .any(|(major, minor)| version.0 == *major && version.1 <= *minor);
        if !known {
            return Err(format!(
                ".version {}.{} does not exist",
                version.0, version.1
            ));
        }

        let arch = name
            .strip_prefix("sm_")
            .or(name.strip_prefix("compute_"))
            .unwrap_or("");
        let Some((_, least)) = TARGETS.iter().find(|(target, _)| *target == arch) else {
            return Err(format!("`{name}` is not a target that ptx-emu knows"));
        };

        if version < *least {
            return Err(format!(
                "{name} needs .version {}.{} or later, the module says {}.{}",
                least.0, least.1, version.0, version.1
            ));
        }

        // The suffix selects features of one architecture (`a`) or of a family (`f`). It is not
        // part of the number.
        let sm = arch.trim_end_matches(['a', 'f']);
        let suffix = arch[sm.len()..].to_string();
        Ok(Target {
            version,
            sm: sm.parse().unwrap_or(0),
            suffix,
            name: name.to_string(),
        })
    }
}

/// Returns an error if the target lacks an instruction.
pub(crate) fn missing(opcode: &str, mods: &[&str], target: &Target) -> Option<String> {
    // Fences of mbarriers and tensor maps share suffixes with `fence.release` and `fence.acquire`.
    let other = |need: &&Need| {
        let of_map = mods.contains(&".tensormap::generic") && need.1 == [".acquire"];
        let of_object = mods.contains(&".mbarrier_init") || mods.contains(&".tensormap::generic");
        let fence = opcode == "fence" && (of_map || need.1 == [".release"] && of_object);

        // A copy out of shared memory that does not stay in the block.
        let out_of = mods.contains(&".bulk_group") || mods.contains(&".shared::cluster");

        // Vectors of eight elements have more than 16 bytes, unless the elements have 16 bits.
        let narrow = [".b16", ".u16", ".s16", ".f16", ".bf16"]
            .iter()
            .any(|ty| mods.contains(ty));
        fence
            || need.1 == [".bulk", ".shared::cta"] && out_of
            || matches!(opcode, "ld" | "st") && need.1 == [".v8"] && narrow
    };
    let applies =
        |need: &&Need| need.0 == opcode && need.1.iter().all(|m| mods.contains(m)) && !other(need);
    let lacking = |need: &&Need| target.version < need.2 || target.sm < need.3;
    let specific =
        SPECIFIC.contains(&opcode) || opcode == "tensormap" && mods.contains(&".replace");
    if specific && target.suffix.is_empty() {
        return Some(format!(
            "`{opcode}` needs a target such as sm_90a, the target is {}",
            target.name
        ));
    }

    if let Some(ty) = SPECIFIC_TYPES
        .iter()
        .find(|ty| opcode == "cvt" && mods.contains(ty))
        && target.suffix.is_empty()
    {
        return Some(format!(
            "`cvt{ty}` needs a target such as sm_100a, the target is {}",
            target.name
        ));
    }

    let (_, suffixes, (major, minor), sm) = NEEDS.iter().filter(applies).find(lacking)?;
    let form = format!("{opcode}{}", suffixes.concat());
    Some(if target.sm < *sm {
        format!(
            "`{form}` needs sm_{sm} or higher, the target is {}",
            target.name
        )
    } else {
        let (a, b) = target.version;
        format!("`{form}` needs .version {major}.{minor} or later, the module says {a}.{b}")
    })
}
