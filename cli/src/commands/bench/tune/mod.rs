//! `bench --tune`: the plans with which whole tokens are fastest, kept for this device and model.
//!
//! The plans that are fastest alone need not be: in a token kernels overlap, and what one of them gains, its neighbours
//! may lose more of. So whole tokens decide. The search starts from the built-in plans, whatever is kept or asked
//! for. It goes through the products once: each plan that may gain takes the product's place in the tuning, all else
//! stays, and the fastest is chosen if it gains more than chance does. In the end these and what was chosen are
//! measured again, and only a result that is faster is kept.
//!
//! Tunings that are compared take turns, each time with buffers and graphs of their own: so the card's mood, and where
//! buffers happen to lie, count for all of them.

mod text;

use std::time::Duration;
use std::{iter, mem};

use warpwright_engine::Product;
use warpwright_engine::tuning::plan_name;

use super::kernels::{Alone, products};
use super::report::Spread;
use super::*;
use crate::tuned;

/// The share of a token's time that counts as chance: rounds of one tuning in one process differ by up to 0.4 % on an
/// H200.
const NOISE: f64 = 0.005;

/// Divisions of a block's warps that are tried for a product, the fastest alone. What is much slower there is so in a
/// token, and each costs seconds.
const CANDIDATES: usize = 4;

/// Turns of a try, of which the median counts.
const TURNS: u32 = 3;

/// Tokens of a try at least, so many that start and end of a round do not count.
const TOKENS: u32 = 32;

/// The emulator takes its time, and its times say nothing.
const EMULATOR_TOKENS: u32 = 2;

/// How tunings are compared.
#[derive(Serialize, Clone, Copy)]
struct Turns {
    turns: u32,
    /// Of a turn.
    tokens: u32,
}

/// What was tried, and what came of it.
#[derive(Serialize)]
pub(super) struct Report {
    #[serde(flatten)]
    header: Header,
    launch: String,
    contexts: Vec<u32>,
    /// The tuning in force, if not the built-in one: the search did not start from it.
    instead_of: Option<String>,
    #[serde(flatten)]
    search: Search,
    compared: Turns,
    built_in: Row,
    /// What was chosen, if anything.
    result: Option<Row>,
    /// Where that was kept, if it is faster.
    kept: Option<PathBuf>,
    /// If not, the file of before, which stays in force.
    stays: Option<PathBuf>,
}

#[derive(Serialize)]
struct Search {
    tried: Turns,
    tries: Vec<Row>,
    /// Plans that do not fit the model.
    left_out: Vec<String>,
    #[serde(skip)]
    chosen: Tuning,
}

/// A tuning and its times, next to others.
#[derive(Serialize)]
struct Row {
    /// Whose plan alone differs, if it is a try.
    product: Option<&'static str>,
    /// Which plan that is; none if it is the one that was there.
    plan: Option<String>,
    /// As `--plan` takes it; empty if all is built in.
    tuning: String,
    /// Of a token on the device, for each context.
    us: Vec<Spread>,
    /// Of the first one's time.
    share: f64,
    chosen: bool,
}

pub(super) fn measure(args: &Args) -> Result<Report, Failure> {
    let mut setup = Setup::new(args)?;
    let instead_of = mem::take(&mut setup.tuned).said();
    let decoder = setup.decoder(setup.options(setup.contexts[0], args.launch))?;
    let header = Header::new(&setup, &decoder);
    let [tried, compared] = turns(&setup);
    let (decoder, search) = search(&setup, decoder, tried)?;
    let mut tunings = vec![Tuning::default(), search.chosen];
    tunings.dedup();
    let progress = setup.progress(tunings.len(), compared);
    let (_, mut rows) = compare(&setup, decoder, &tunings, compared, &progress)?;
    progress.finish_and_clear();
    let (built_in, result) = (rows.remove(0), rows.pop());
    let (device, outline) = (setup.context.device(), setup.outline());
    let faster = result.as_ref().is_some_and(|row| row.chosen);
    let kept = faster.then(|| tuned::keep(&search.chosen, device, outline)).transpose()?;
    let stays = Tuned::of(None, device, outline).file.filter(|_| !faster);
    let (launch, contexts) = (report::name(args.launch), setup.contexts);
    Ok(Report { header, launch, contexts, instead_of, search, compared, built_in, result, kept, stays })
}

impl Setup<'_> {
    /// A bar for so many tunings.
    fn progress(&self, tunings: usize, turns: Turns) -> ProgressBar {
        ProgressBar::new((tunings * self.contexts.len() * turns.turns as usize) as u64)
    }
}

/// Of a try, and of the last comparison.
fn turns(setup: &Setup) -> [Turns; 2] {
    let Args { tokens, rounds, .. } = *setup.args;
    if device::is_emulator(&setup.context) {
        let tokens = tokens.min(EMULATOR_TOKENS);
        return [Turns { turns: 1, tokens }, Turns { turns: rounds, tokens }];
    }
    // Whole launches: tokens that do not fill one are slower.
    let launches = TOKENS.next_multiple_of(setup.options(1, setup.args.launch).tokens_per_launch);
    [Turns { turns: TURNS, tokens: tokens.min(launches) }, Turns { turns: rounds, tokens }]
}

/// Goes through the products.
fn search(setup: &Setup, mut decoder: Decoder, tried: Turns) -> Result<(Decoder, Search), Failure> {
    let (candidates, left_out) = candidates(setup, &mut decoder)?;
    let progress = setup.progress(candidates.iter().map(|(_, plans)| 1 + plans.len()).sum(), tried);
    let (mut there, mut tries) = (Tuning::default(), vec![]);
    for (product, plans) in candidates {
        let others = plans.iter().map(|&plan| with(there, product, plan));
        let tunings: Vec<Tuning> = iter::once(there).chain(others).collect();
        let mut rows;
        (decoder, rows) = compare(setup, decoder, &tunings, tried, &progress)?;
        rows.iter_mut().for_each(|row| row.product = Some(product.name()));
        iter::zip(&mut rows[1..], &plans).for_each(|(row, plan)| row.plan = Some(plan_name(*plan)));
        there = tunings[rows.iter().position(|row| row.chosen).expect("one is chosen")];
        tries.extend(rows);
    }
    progress.finish_and_clear();
    Ok((decoder, Search { tried, tries, left_out, chosen: there }))
}

/// The plans to try for each product.
type Candidates = Vec<(Product, Vec<Plan>)>;

/// What to try, and the plans that do not fit the model; one that fits does so next to any other. The copies of
/// matrices that this takes are gone afterwards.
fn candidates(setup: &Setup, decoder: &mut Decoder) -> Result<(Candidates, Vec<String>), Failure> {
    let progress = ProgressBar::new(setup.args.plans.len() as u64);
    let alone = Alone::measure(setup, decoder, &progress)?;
    progress.finish_and_clear();
    let worth = |product| (product, worth_trying(alone.fastest(product)));
    Ok((products().map(worth).collect(), alone.left_out))
}

/// The plans with the first divisions of these. What it is worth to hold back shows next to other kernels only: such
/// plans are tried where their division is.
fn worth_trying(mut fastest: Vec<Plan>) -> Vec<Plan> {
    let division = |plan: &Plan| (plan.width, plan.groups);
    let mut divisions = vec![];
    for plan in &fastest {
        if divisions.len() < CANDIDATES && !divisions.contains(&division(plan)) {
            divisions.push(division(plan));
        }
    }
    fastest.retain(|plan| divisions.contains(&division(plan)));
    fastest
}

/// The tuning with this plan for the product.
fn with(tuning: Tuning, product: Product, plan: Plan) -> Tuning {
    let plan = Some(plan);
    match product {
        Product::Qkv => Tuning { qkv: plan, ..tuning },
        Product::O => Tuning { o: plan, ..tuning },
        Product::GateUp => Tuning { gate_up: plan, ..tuning },
        Product::Down => Tuning { down: plan, ..tuning },
        Product::Head => Tuning { head: plan, ..tuning },
    }
}

/// Measures tunings in turn, and chooses one.
fn compare(
    setup: &Setup,
    mut decoder: Decoder,
    tunings: &[Tuning],
    turns: Turns,
    progress: &ProgressBar,
) -> Result<(Decoder, Vec<Row>), Failure> {
    let mut times = vec![vec![vec![]; setup.contexts.len()]; tunings.len()];
    for _ in 0..turns.turns {
        for (&tuning, times) in tunings.iter().zip(&mut times) {
            for (&ctx, times) in setup.contexts.iter().zip(times) {
                let time;
                (decoder, time) = round(setup, decoder, tuning, ctx, turns.tokens)?;
                times.push(time);
                progress.inc(1);
            }
        }
    }
    let spreads = |times: &Vec<Vec<_>>| {
        times.iter().map(|times| Spread::of(turns.tokens, times.iter().copied())).collect()
    };
    Ok((decoder, rows(tunings, times.iter().map(spreads).collect())))
}

/// The time on the device of a round with this tuning.
fn round(
    setup: &Setup,
    decoder: Decoder,
    tuning: Tuning,
    ctx: u32,
    tokens: u32,
) -> Result<(Decoder, Duration), Failure> {
    interrupt::check()?;
    let options = Options { tuning, ..setup.options(ctx, setup.args.launch) };
    let mut decoder = decoder.with_options(setup.outline(), options)?;
    decoder.round(ctx, tokens.min(WARM_UP))?;
    let time = decoder.round(ctx, tokens)?.device;
    Ok((decoder, time))
}

fn rows(tunings: &[Tuning], times: Vec<Vec<Spread>>) -> Vec<Row> {
    let medians: Vec<Vec<f64>> =
        times.iter().map(|us| us.iter().map(|spread| spread.median).collect()).collect();
    let chosen = choice(&medians);
    let row = |(i, us): (usize, Vec<Spread>)| Row {
        product: None,
        plan: None,
        tuning: tunings[i].to_string(),
        share: share(&medians[i], &medians[0]),
        us,
        chosen: i == chosen,
    };
    times.into_iter().enumerate().map(row).collect()
}

/// Which of some tunings to take: the fastest, if it gains more than chance over the first, which is there. Each has
/// a time for each context.
fn choice(times: &[Vec<f64>]) -> usize {
    let shares = times.iter().map(|of| share(of, &times[0])).enumerate();
    let (fastest, least) = shares.min_by(|(_, a), (_, b)| a.total_cmp(b)).expect("there is a tuning");
    if least < 1.0 - NOISE { fastest } else { 0 }
}

/// The time as a share of that of what is there, where all contexts weigh the same.
fn share(times: &[f64], there: &[f64]) -> f64 {
    times.iter().zip(there).map(|(time, there)| time / there).sum::<f64>() / times.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_gains_more_than_chance_over_the_first_is_chosen() {
        let cases: [(&[&[f64]], usize); 7] = [
            (&[&[100.0]], 0),
            (&[&[100.0], &[99.6]], 0),
            (&[&[100.0], &[99.4]], 1),
            (&[&[100.0], &[99.0], &[98.0], &[101.0]], 2),
            // All contexts weigh the same, however long their tokens take.
            (&[&[100.0, 1000.0], &[90.0, 1095.0]], 0),
            (&[&[100.0, 1000.0], &[90.0, 1085.0]], 1),
            (&[&[100.0, 1000.0], &[90.0, 1085.0], &[101.0, 900.0]], 2),
        ];
        for (times, chosen) in cases {
            let times: Vec<Vec<f64>> = times.iter().map(|us| us.to_vec()).collect();
            assert_eq!(choice(&times), chosen, "{times:?}");
        }
    }

    #[test]
    fn rows_compare_with_the_first_and_one_is_chosen() {
        let us = |micros| Spread::of(1, iter::once(Duration::from_micros(micros)));
        let tunings = ["", "4x2_first", "8x1_first"].map(|text| text.parse().unwrap_or_default());
        let permille = |times: [u64; 3]| {
            let rows = rows(&tunings, times.map(|time| vec![us(time), us(2 * time)]).into());
            rows.iter().map(|row| ((row.share * 1000.0).round(), row.chosen)).collect::<Vec<_>>()
        };
        assert_eq!(permille([1000, 996, 1500]), [(1000.0, true), (996.0, false), (1500.0, false)]);
        assert_eq!(permille([1000, 996, 750]), [(1000.0, false), (996.0, false), (750.0, true)]);
    }

    #[test]
    fn plans_that_hold_back_are_tried_with_their_division() {
        let plan = |text| warpwright_engine::tuning::plan(text).expect("a plan");
        let fastest = [
            "1x1_first",
            "2x4_first",
            "8x1_first",
            "2x4_waited",
            "4x2_first",
            "4x3_first",
            "2x4_first_early6",
        ];
        let left = worth_trying(fastest.map(plan).into());
        let left: Vec<_> = left.into_iter().map(plan_name).collect();
        assert_eq!(
            left,
            ["1x1_first", "2x4_first", "8x1_first", "2x4_waited", "4x2_first", "2x4_first_early6"]
        );
    }

    #[test]
    fn a_plan_takes_its_products_place_and_no_others() {
        let plan = |text| warpwright_engine::tuning::plan(text).expect("a plan");
        let mut tuning = Tuning::default();
        for (product, text) in
            products().zip(["1x1_first", "1x2_first", "1x3_first", "1x4_first", "1x5_first"])
        {
            let before = tuning;
            tuning = with(tuning, product, plan(text));
            let part = format!("{}={text}", product.name());
            assert_eq!(tuning.to_string(), [before.to_string(), part].join(",").trim_start_matches(','));
        }
    }
}
