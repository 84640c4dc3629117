//! How the pipeline's kernels divide their blocks.
//!
//! Without an option, the plan is derived from the matrix.

use std::fmt;
use std::str::FromStr;

use warpwright_kernels::Format;
use warpwright_kernels::format::activations::ActivationBytes;
use warpwright_kernels::pipeline::{Copies, Plan};

use crate::Error;

/// A plan for each product of the pipeline, and their shared memory. Missing values are derived from the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tuning {
    /// Of queries, keys and values.
    pub qkv: Option<Plan>,
    /// Of the output projection after attention.
    pub o: Option<Plan>,
    /// Of gate and up.
    pub gate_up: Option<Plan>,
    /// Of the down projection.
    pub down: Option<Plan>,
    /// Of the LM head.
    pub head: Option<Plan>,
    /// Bytes of shared memory of a block; half of an SM's by default.
    pub shared: Option<u32>,
    /// Whether the kernels record the timestamps that [`Decoder::profile`](crate::Decoder::profile) reads.
    pub profile: bool,
}

/// With fewer rows, an SM gets one or two row blocks.
const FEW_ROWS: u32 = 3072;
/// Shorter rows of 16-bit weights are faster with more warps.
const SHORT_ROWS: u32 = 4096;

/// The plan of a matrix in this format with `rows` of `n`. Measured on an H200.
///
/// Few, long rows are faster with more warps, which encode the many activations sooner. With more rows, the partial
/// sums of more warps would take shared memory from the ring.
pub(crate) fn default_plan(format: Format, rows: u32, n: u32) -> Plan {
    match Plan::large(format) {
        Plan::HALF if n < SHORT_ROWS => Plan::HALF_SHORT_ROWS,
        Plan::DEFAULT if rows < FEW_ROWS && n > rows => Plan::TWELVE_WARPS,
        plan => plan,
    }
}

/// The same with so many bytes an activation. Three leave twelve warps too few registers, where two blocks share an SM.
pub(crate) fn default_plan_with(bytes: ActivationBytes, format: Format, rows: u32, n: u32) -> Plan {
    match default_plan(format, rows, n) {
        Plan::TWELVE_WARPS if bytes == ActivationBytes::Three => Plan::DEFAULT,
        plan => plan,
    }
}

impl Tuning {
    /// This plan for all products.
    pub(crate) fn all(plan: Plan) -> Tuning {
        let mut tuning = Tuning::default();
        tuning
            .plans()
            .into_iter()
            .for_each(|(_, of)| *of = Some(plan));
        tuning
    }

    /// The plans by product name.
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
        match name {
            "shared" => self.shared = Some(number(value)?),
            _ => {
                let of = self.plans().into_iter().find(|(known, _)| *known == name);
                let unknown =
                    || format!("{name} is not one of qkv, o, gate_up, down, head, shared");
                let (_, of) = of.ok_or_else(unknown)?;
                *of = Some(plan(value)?);
            }
        }
        Ok(())
    }
}

fn number(text: &str) -> Result<u32, String> {
    text.parse()
        .map_err(|_| format!("{text} is not an integer"))
}

/// `4x2_first`, as kernel names end: warps per group, and groups. `4x2_first_prefetch6` prefetches at most 6 stages before the
/// previous product has issued its last load.
///
/// # Errors
/// What is wrong with the text.
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
            profile: false,
        })
    };
    let plan = parsed().ok_or(format!(
        "{text} is not a plan such as 4x2_first or 4x2_first_prefetch6"
    ))?;
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

    /// Comma-separated settings; later ones override earlier ones: a plan for all products (`4x2_first`), for one
    /// product (`down=8x1_first`), or `shared=100000`.
    fn from_str(text: &str) -> Result<Tuning, Error> {
        let mut tuning = Tuning::default();
        let wrong = |problem| Error::Tuning {
            text: text.into(),
            problem,
        };
        text.split(',')
            .try_for_each(|part| tuning.set(part))
            .map_err(wrong)?;
        Ok(tuning)
    }
}

impl fmt::Display for Tuning {
    /// The given values, in the syntax that is parsed.
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

/// As [`Tuning`] parses it.
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
            let wanted = format!("the tuning \"{text}\" is not understood: {problem}");
            assert_eq!(text.parse::<Tuning>().unwrap_err().to_string(), wanted);
        }
    }
}
