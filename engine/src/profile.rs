//! What each kernel of a step did when.

use crate::chain::Product;
use crate::decoder::Kind;
use crate::{Decoder, Error};

/// A kernel of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// What it is for: `qkv`, `attention`, `o`, `gate_up`, `down` or `head`.
    pub part: &'static str,
    /// Its name.
    pub kernel: String,
    /// Bytes of weights, or of keys and values, that it reads.
    pub bytes: u64,
}

/// The times of one kernel: of each block, by [`Stamp`](warpwright_kernels::tiled::plan::Stamp). A time that a block
/// did not take is 0.
pub type Times = Vec<[u64; 8]>;

/// Some steps, and the times of their kernels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// The kernels of a step in order, but for the one that embeds, which takes no times.
    pub links: Vec<Link>,
    /// Of each step the times of each kernel.
    pub steps: Vec<Vec<Times>>,
}

impl Decoder {
    /// Decodes `tokens` tokens, the first of which attends `attended` positions, and reads what times the kernels of
    /// each took. The options' tuning must say that they [do](crate::Tuning::profile), and the path be a chain.
    ///
    /// # Errors
    /// As [`round`](Decoder::round), and kernels that take no times.
    pub fn profile(&mut self, attended: u32, tokens: u32) -> Result<Profile, Error> {
        self.prepare(attended, tokens)?;
        if !self.chained()?.chain.fit.tuning.profile {
            return Err(Error::NoTimes);
        }
        let links = self.chained()?.list(attended);
        let mut steps = vec![];
        for _ in 0..tokens {
            self.launch(Kind::Token)?;
            self.stream.synchronize()?;
            steps.push(self.chained()?.links.times()?);
        }
        Ok(Profile { links, steps })
    }
}

impl crate::chain::Step<'_> {
    /// The kernels of a step that attends so many positions.
    fn list(&self, attended: u32) -> Vec<Link> {
        let product = |product: Product, index| {
            let bytes = self.tiles(product, index).len() as u64;
            Link { part: product.name(), kernel: self.kernel(product, index).into(), bytes }
        };
        let layer = |index| {
            let attention = Link {
                part: "attention",
                kernel: self.attention_kernel().into(),
                bytes: self.kv_bytes(attended),
            };
            let [qkv, o, gate_up, down] = Product::OF_LAYER.map(|of| product(of, index));
            [qkv, attention, o, gate_up, down]
        };
        let layers = self.weights.blocks.len();
        (0..layers).flat_map(layer).chain([product(Product::Head, 0)]).collect()
    }
}
