//! An adapter in the host's memory.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use crate::adapter::names::PROJECTIONS;

/// How many projections are in which number format.
pub type Formats = BTreeMap<String, usize>;

/// An adapter that fits a model.
#[derive(Debug, Clone, PartialEq)]
pub struct Adapter {
    /// The folder.
    pub path: PathBuf,
    /// The model that it was trained for, as its configuration names it.
    pub base: Option<String>,
    /// The number formats of the weights that it was trained on, if the folder says so.
    pub trained_on: Option<Formats>,
    /// `lora_alpha` of most projections.
    pub alpha: f64,
    /// Whether the scale is `alpha / sqrt(rank)`, not `alpha / rank` (rank-stabilized LoRA).
    pub rslora: bool,
    /// Projections that the configuration names and the folder has no matrices for: they are taken for 0, as PEFT does.
    pub missing: Vec<String>,
    /// For each layer, the factors of the projections in the order of
    /// [`PROJECTIONS`](crate::adapter::names::PROJECTIONS).
    pub(crate) layers: Vec<[Option<Factors>; 7]>,
}

/// The two matrices of a projection.
#[derive(Clone, PartialEq)]
pub(crate) struct Factors {
    /// Columns of B, rows of A.
    pub(crate) rank: u32,
    /// What multiplies `B A x`; A times it is finite in F32.
    pub(crate) scale: f64,
    /// `[rank, n]`: A.
    pub(crate) a: Vec<f32>,
    /// `[rows, rank]`: B, its rows in the order of the model file.
    pub(crate) b: Vec<f32>,
}

/// Their sizes: nobody wants to read the numbers.
impl fmt::Debug for Factors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rank = self.rank as usize;
        write!(
            f,
            "A {rank} x {}, B {} x {rank}",
            self.a.len() / rank,
            self.b.len() / rank
        )
    }
}

impl Factors {
    /// A times a scale, rounded once.
    pub(crate) fn a_times(&self, scale: f64) -> impl Iterator<Item = f32> {
        self.a.iter().map(move |&x| (f64::from(x) * scale) as f32)
    }

    /// A times the scale, as kernels want it.
    pub(crate) fn scaled_a(&self) -> impl Iterator<Item = f32> {
        self.a_times(self.scale)
    }
}

impl Adapter {
    /// The smallest and the largest rank.
    pub fn ranks(&self) -> RangeInclusive<u32> {
        let ranks = || self.factors().map(|factors| factors.rank);
        ranks().min().unwrap_or(0)..=ranks().max().unwrap_or(0)
    }

    /// The projections that have an adapter, each with the number of its layers.
    pub fn targets(&self) -> Vec<(&'static str, usize)> {
        let layers = |p: usize| {
            self.layers
                .iter()
                .filter(|layer| layer[p].is_some())
                .count()
        };
        let all = PROJECTIONS
            .iter()
            .enumerate()
            .map(|(p, name)| (*name, layers(p)));
        all.filter(|&(_, layers)| layers > 0).collect()
    }

    /// Numbers that were trained.
    pub fn numbers(&self) -> u64 {
        self.factors()
            .map(|factors| (factors.a.len() + factors.b.len()) as u64)
            .sum()
    }

    fn factors(&self) -> impl Iterator<Item = &Factors> {
        self.layers.iter().flatten().flatten()
    }
}
