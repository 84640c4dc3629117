//! How the kernels of the chain divide their blocks.

use std::fmt;
use std::str::FromStr;

use warpwright_kernels::tiled::{AttentionChained, Copies, Plan, Trigger};

use crate::Error;

/// A plan for each product of the chain, and their shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuning {
    /// Of queries, keys and values.
    pub qkv: Plan,
    /// Of the projection behind attention.
    pub o: Plan,
    /// Of the first half of the feed-forward block.
    pub gate_up: Plan,
    /// Of its second half.
    pub down: Plan,
    /// Of the LM head.
    pub head: Plan,
    /// Bytes of shared memory of a block: half of a multiprocessor's if not given.
    pub shared: Option<u32>,
    /// When the kernel behind attention may start.
    pub attention: Trigger,
    /// Nanoseconds that a block without work in attention stays.
    pub nap: u32,
}

impl Default for Tuning {
    fn default() -> Self {
        let plan = Plan::SHIPPED;
        let AttentionChained { trigger: attention, nap, .. } = AttentionChained::shipped(128, 1);
        Tuning { qkv: plan, o: plan, gate_up: plan, down: plan, head: plan, shared: None, attention, nap }
    }
}

const TRIGGERS: [(&str, Trigger); 3] =
    [("first", Trigger::First), ("waited", Trigger::Waited), ("drained", Trigger::Drained)];

impl Tuning {
    /// The products by name.
    fn plans(&mut self) -> [(&'static str, &mut Plan); 5] {
        let Tuning { qkv, o, gate_up, down, head, .. } = self;
        [("qkv", qkv), ("o", o), ("gate_up", gate_up), ("down", down), ("head", head)]
    }

    fn set(&mut self, part: &str) -> Result<(), String> {
        let Some((name, value)) = part.split_once('=') else {
            let plan = plan(part)?;
            self.plans().into_iter().for_each(|(_, of)| *of = plan);
            return Ok(());
        };
        match name {
            "shared" => self.shared = Some(number(value)?),
            "attention" => self.attention = trigger(value).ok_or(format!("{value} is no trigger"))?,
            "nap" => self.nap = number(value)?,
            _ => {
                let plan = plan(value)?;
                let mut plans = self.plans().into_iter();
                let of = plans.find(|(known, _)| *known == name);
                *of.ok_or(format!(
                    "{name} is none of qkv, o, gate_up, down, head, attention, shared, nap"
                ))?
                .1 = plan;
            }
        }
        Ok(())
    }
}

fn number(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("{text} is no whole number"))
}

fn trigger(text: &str) -> Option<Trigger> {
    TRIGGERS.into_iter().find(|(name, _)| *name == text).map(|(_, trigger)| trigger)
}

fn name(trigger: Trigger) -> &'static str {
    TRIGGERS.into_iter().find(|(_, known)| *known == trigger).expect("all are in the table").0
}

/// `4x2_first`: warps of a group, groups, and when the next kernel may start.
fn plan(text: &str) -> Result<Plan, String> {
    let parsed = || {
        let (warps, trigger) = text.split_once('_')?;
        let (width, groups) = warps.split_once('x')?;
        Some(Plan {
            width: width.parse().ok()?,
            groups: groups.parse().ok()?,
            trigger: self::trigger(trigger)?,
            copies: Copies::Bulk,
            profile: false,
        })
    };
    let plan = parsed().ok_or(format!("{text} is no plan such as 4x2_first, 8x1_waited or 4x3_drained"))?;
    let most = [plan.width, plan.groups].into_iter().try_fold(1, u32::checked_mul);
    match most {
        Some(1..=31) => Ok(plan),
        _ => Err(format!("{text} has not 1 to 31 warps")),
    }
}

impl FromStr for Tuning {
    type Err = Error;

    /// Parts between commas, each over those before it: a plan for all products (`4x2_first`), one for some
    /// (`down=8x1_waited`), or `shared=100000`.
    fn from_str(text: &str) -> Result<Tuning, Error> {
        let mut tuning = Tuning::default();
        let wrong = |problem| Error::Tuning { text: text.into(), problem };
        text.split(',').try_for_each(|part| tuning.set(part)).map_err(wrong)?;
        Ok(tuning)
    }
}

impl fmt::Display for Tuning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut copy = *self;
        let plans = copy
            .plans()
            .map(|(of, plan)| format!("{of}={}x{}_{}", plan.width, plan.groups, name(plan.trigger)));
        write!(f, "{},attention={},nap={}", plans.join(","), name(self.attention), self.nap)?;
        self.shared.map_or(Ok(()), |shared| write!(f, ",shared={shared}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_tunings() {
        for text in [
            "qkv=4x2_first,o=4x2_first,gate_up=4x2_first,down=4x2_first,head=4x2_first,attention=first,nap=1500",
            "qkv=8x1_waited,o=1x1_first,gate_up=4x3_drained,down=2x8_first,head=4x2_first,attention=waited,nap=0,shared=99",
        ] {
            assert_eq!(text.parse::<Tuning>().unwrap().to_string(), text);
        }
        let all: Tuning = "8x1_waited,o=4x2_first".parse().unwrap();
        let text = "qkv=8x1_waited,o=4x2_first,gate_up=8x1_waited,down=8x1_waited,head=8x1_waited,";
        assert!(all.to_string().starts_with(text), "{all}");
    }

    #[test]
    fn says_what_is_no_tuning() {
        let cases = [
            ("", " is no plan such as 4x2_first, 8x1_waited or 4x3_drained"),
            ("4x2_late", "4x2_late is no plan such as 4x2_first, 8x1_waited or 4x3_drained"),
            ("8x4_first", "8x4_first has not 1 to 31 warps"),
            ("up=4x2_first", "up is none of qkv, o, gate_up, down, head, attention, shared, nap"),
            ("shared=much", "much is no whole number"),
        ];
        for (text, problem) in cases {
            let wanted = format!("the tuning \"{text}\" is not understood: {problem}");
            assert_eq!(text.parse::<Tuning>().unwrap_err().to_string(), wanted);
        }
    }
}
