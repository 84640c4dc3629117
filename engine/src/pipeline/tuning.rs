//! The plans of the pipeline's GEMV kernels. A plan that is not set is derived from the matrix.

use std::fmt;
use std::str::FromStr;

use warpwright_kernels::Format;
use warpwright_kernels::format::activations::ActivationBytes;
use warpwright_kernels::pipeline::{Copies, Plan};

use crate::Error;

/// A plan for each GEMV of the pipeline, and their shared memory. Missing values are derived from
/// the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tuning {
    /// The plan of queries, keys and values.
    pub qkv: Option<Plan>,
    /// The plan of the output projection of attention.
    pub o: Option<Plan>,
    /// The plan of gate and up.
    pub gate_up: Option<Plan>,
    /// The plan of the down projection.
    pub down: Option<Plan>,
    /// The plan of the LM head.
    pub head: Option<Plan>,
    /// The bytes of shared memory per block. The default is half of a multiprocessor's.
    pub shared: Option<u32>,
    /// Whether the kernels record the timestamps that [`Decoder::profile`](crate::Decoder::profile)
    /// reads.
    pub profile: bool,
}

/// The number of rows below which a multiprocessor gets only one or two row blocks.
const FEW_ROWS: u32 = 3072;
/// The row length below which 16-bit weights are faster with more warps.
const SHORT_ROWS: u32 = 4096;

/// Returns the default plan of a matrix in this format, with `rows` rows of `n` weights. The limits
/// were measured on an H200.
///
/// Few, long rows are faster with more warps, because more warps encode the many activations
/// sooner. With more rows, the partial sums of additional warps would take shared memory away from
/// the ring.
pub(crate) fn default_plan(format: Format, rows: u32, n: u32) -> Plan {
    match Plan::large(format) {
        Plan::HALF if n < SHORT_ROWS => Plan::HALF_SHORT_ROWS,
        Plan::DEFAULT if rows < FEW_ROWS && n > rows => Plan::TWELVE_WARPS,
        plan => plan,
    }
}

/// Returns the default plan for activations of this size. Activations of three bytes leave twelve
/// warps too few registers if two blocks share a multiprocessor.
pub(crate) fn default_plan_with(bytes: ActivationBytes, format: Format, rows: u32, n: u32) -> Plan {
    match default_plan(format, rows, n) {
        Plan::TWELVE_WARPS if bytes == ActivationBytes::Three => Plan::DEFAULT,
        plan => plan,
    }
}

impl Tuning {
    /// Returns a tuning with this plan for all GEMVs.
    pub(crate) fn all(plan: Plan) -> Tuning {
        let mut tuning = Tuning::default();
        for (_, slot) in tuning.plans() {
            *slot = Some(plan);
        }
        tuning
    }

    /// Returns the plans by the name of the GEMV.
    fn plans(&mut self) -> [(&'static str, &mut Option<Plan>); 5] {
        let Tuning {
            qkv,
            o,
            gate_up,
            down,
            head,
            ..
        } = self;
        [
            ("qkv", qkv),
            ("o", o),
            ("gate_up", gate_up),
            ("down", down),
            ("head", head),
        ]
    }

    /// Applies one setting of a comma-separated list.
    fn set(&mut self, part: &str) -> Result<(), String> {
        let Some((name, value)) = part.split_once('=') else {
            let Tuning {
                qkv,
                o,
                gate_up,
                down,
                head,
                ..
            } = Tuning::all(plan(part)?);
            *self = Tuning {
                qkv,
                o,
                gate_up,
                down,
                head,
                ..*self
            };
            return Ok(());
        };

        if name == "shared" {
            self.shared = Some(number(value)?);
            return Ok(());
        }

        let slot = self.plans().into_iter().find(|(known, _)| *known == name);
        let unknown = || format!("{name} is not one of qkv, o, gate_up, down, head, shared");
        let (_, slot) = slot.ok_or_else(unknown)?;
        *slot = Some(plan(value)?);
        Ok(())
    }
}

fn number(text: &str) -> Result<u32, String> {
    text.parse()
        .map_err(|_| format!("{text} is not an integer"))
}

/// Parses a plan such as `4x2_first`, in the form in which kernel names end: warps per group and
/// groups.
///
/// `4x2_first_prefetch6` prefetches at most 6 stages before the previous GEMV has issued its last
/// load.
///
/// # Errors
/// Returns a sentence about the text that is not a plan.
pub fn plan(text: &str) -> Result<Plan, String> {
    let parsed = || {
        let (warps, rest) = text.split_once('_')?;
        let (width, groups) = warps.split_once('x')?;
        let prefetch_limit = match rest.strip_prefix("first")? {
            "" => None,
            rest => Some(rest.strip_prefix("_prefetch")?.parse().ok()?),
        };
        Some(Plan {
            width: width.parse().ok()?,
            groups: groups.parse().ok()?,
            copies: Copies::Bulk,
            prefetch_limit,
            batch: 1,
            bytes: ActivationBytes::Two,
            row_len: None,
            profile: false,
        })
    };
    let plan = parsed().ok_or(format!(
        "{text} is not a plan such as 4x2_first or 4x2_first_prefetch6"
    ))?;

    // A block has at most 32 warps, and one of them loads the weights.
    let most = [plan.width, plan.groups]
        .into_iter()
        .try_fold(1, u32::checked_mul);
    match most {
        Some(1..=31) => Ok(plan),
        _ => Err(format!("{text} must have 1 to 31 warps")),
    }
}

impl FromStr for Tuning {
    type Err = Error;

    /// Parses comma-separated settings, of which later ones override earlier ones. A setting is a
    /// plan for all GEMVs (`4x2_first`), a plan for one GEMV (`down=8x1_first`), or
    /// `shared=100000`.
    fn from_str(text: &str) -> Result<Tuning, Error> {
        let mut tuning = Tuning::default();
        let wrong = |problem| Error::Tuning {
            text: text.into(),
            problem,
        };
        for part in text.split(',') {
            tuning.set(part).map_err(wrong)?;
        }
        Ok(tuning)
    }
}

impl fmt::Display for Tuning {
    /// Writes the values that are set, in the syntax that is parsed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut copy = *self;
        let plans = copy
            .plans()
            .map(|(of, plan)| plan.map(|plan| format!("{of}={}", plan_name(plan))));
        let shared = self.shared.map(|shared| format!("shared={shared}"));
        let parts: Vec<String> = plans.into_iter().chain([shared]).flatten().collect();
        f.write_str(&parts.join(","))
    }
}

/// Returns the name of a plan, as [`Tuning`] parses it.
pub fn plan_name(plan: Plan) -> String {
    let prefetch_limit = plan
        .prefetch_limit
        .map_or(String::new(), |stages| format!("_prefetch{stages}"));
    format!("{}x{}_first{prefetch_limit}", plan.width, plan.groups)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_tunings() {
        for text in [
            "qkv=4x2_first,o=4x2_first,gate_up=4x2_first,down=4x2_first,head=4x2_first",
            "qkv=8x1_first,o=1x1_first_prefetch12,gate_up=4x3_first,down=2x8_first,head=4x2_first,shared=99",
        ] {
            assert_eq!(text.parse::<Tuning>().unwrap().to_string(), text);
        }

        let all: Tuning = "8x1_first,o=4x2_first".parse().unwrap();
        let text = "qkv=8x1_first,o=4x2_first,gate_up=8x1_first,down=8x1_first,head=8x1_first";
        assert!(text.starts_with(&all.to_string()), "{all}");
        assert_eq!(Tuning::default().to_string(), "");
    }

    #[test]
    fn plans_follow_from_the_matrix() {
        let cases = [
            (Format::Q4_K, 17920, 1536, "2x4_first"),
            (Format::Q4_K, 1536, 1536, "2x4_first"),
            (Format::Q4_K, 1536, 8960, "2x6_first"),
            (Format::Q8_0, 4096, 14336, "2x4_first"),
            (Format::F16, 4096, 4095, "1x8_first"),
            (Format::BF16, 4096, 14336, "2x2_first"),
        ];
        for (format, rows, n, plan) in cases {
            assert_eq!(plan_name(default_plan(format, rows, n)), plan);
        }

        let three = default_plan_with(ActivationBytes::Three, Format::Q3_K, 1536, 8960);
        assert_eq!(plan_name(three), "2x4_first");
        let throttled =
            |before, rows| plan_name(default_plan(Format::Q6_K, rows, 8192).after(before));
        assert_eq!(
            [256, 4096].map(|rows| throttled(Format::Q4_K, rows)),
            ["2x6_first_prefetch6", "2x4_first_prefetch6"]
        );
        assert_eq!(
            [256, 4096].map(|rows| throttled(Format::Q6_K, rows)),
            ["2x6_first", "2x4_first"]
        );
    }

    #[test]
    fn says_what_is_no_tuning() {
        let cases = [
            (
                "",
                " is not a plan such as 4x2_first or 4x2_first_prefetch6",
            ),
            (
                "4x2_late",
                "4x2_late is not a plan such as 4x2_first or 4x2_first_prefetch6",
            ),
            (
                "4x2_first_prefetch",
                "4x2_first_prefetch is not a plan such as 4x2_first or 4x2_first_prefetch6",
            ),
            (
                "4x2_waited",
                "4x2_waited is not a plan such as 4x2_first or 4x2_first_prefetch6",
            ),
            ("8x4_first", "8x4_first must have 1 to 31 warps"),
            (
                "up=4x2_first",
                "up is not one of qkv, o, gate_up, down, head, shared",
            ),
            (
                "nap=0",
                "nap is not one of qkv, o, gate_up, down, head, shared",
            ),
            ("shared=much", "much is not an integer"),
        ];
        for (text, problem) in cases {
            let wanted = format!("the tuning \"{text}\" is invalid: {problem}");
            assert_eq!(text.parse::<Tuning>().unwrap_err().to_string(), wanted);
        }
    }
}
