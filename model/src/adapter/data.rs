//! An adapter in host memory.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use crate::adapter::names::PROJECTIONS;

/// The number of projections in each number format.
pub type Formats = BTreeMap<String, usize>;

/// An adapter that fits a model.
#[derive(Debug, Clone, PartialEq)]
pub struct Adapter {
    /// The directory of the adapter.
    pub path: PathBuf,
    /// The model for which the adapter was trained, as its configuration names it.
    pub base: Option<String>,
    /// The number formats of the weights on which it was trained, if the directory records them.
    pub trained_on: Option<Formats>,
    /// The value of `lora_alpha`, which most projections use.
    pub alpha: f64,
    /// Whether the scale is `alpha / sqrt(rank)` (rank-stabilized LoRA) instead of `alpha / rank`.
    pub rslora: bool,
    /// The projections that the configuration names but the directory has no matrices for. They are
    /// treated as 0, as in PEFT.
    pub missing: Vec<String>,
    /// The factors of each layer's projections, in the order of
    /// [`PROJECTIONS`](crate::adapter::names::PROJECTIONS).
    pub layers: Vec<[Option<LoraFactors>; 7]>,
}

/// The two matrices of a projection's adapter.
#[derive(Clone, PartialEq)]
pub struct LoraFactors {
    /// The number of columns of B and of rows of A.
    pub rank: u32,
    /// The scale of `B A x`. The product of A and the scale is finite in F32.
    pub scale: f64,
    /// The matrix A, `[rank, n]`.
    pub a: Vec<f32>,
    /// The matrix B, `[rows, rank]`, with its rows in the order of the model file.
    pub b: Vec<f32>,
}

/// Writes only the shapes, because the values would fill pages.
impl fmt::Debug for LoraFactors {
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

impl LoraFactors {
    /// Returns the elements of A times a scale, each rounded once.
    pub(crate) fn a_times(&self, scale: f64) -> impl Iterator<Item = f32> {
        self.a.iter().map(move |&x| (f64::from(x) * scale) as f32)
    }

    /// Returns the elements of A times the adapter's scale, as the kernels read them.
    pub fn scaled_a(&self) -> impl Iterator<Item = f32> {
        self.a_times(self.scale)
    }
}

impl Adapter {
    /// Returns the smallest and the largest rank.
    pub fn ranks(&self) -> RangeInclusive<u32> {
        let ranks = || self.factors().map(|factors| factors.rank);
        ranks().min().unwrap_or(0)..=ranks().max().unwrap_or(0)
    }

    /// Returns the projections that have an adapter, each with its number of layers.
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

    /// Returns the number of trained parameters.
    pub fn numbers(&self) -> u64 {
        self.factors()
            .map(|factors| (factors.a.len() + factors.b.len()) as u64)
            .sum()
    }

    fn factors(&self) -> impl Iterator<Item = &LoraFactors> {
        self.layers.iter().flatten().flatten()
    }
}
