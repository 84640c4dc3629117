//! The device memory of mixtures of experts in a pass.

use warpwright_driver::memory::Buffer;
use warpwright_driver::{Context, Error};
use warpwright_model::Config;
use warpwright_model::layer::Experts;

use super::sorted_rows::most_rows;
use crate::chunked::CHUNK;
use crate::chunked::panels::Panels;

/// The buffers of mixtures of experts. Layers use them one after the other.
pub(crate) struct ExpertBuffers {
    /// The logits of the router, `[chunk, count]`.
    pub(crate) logits: Buffer<f32>,
    /// The experts of each token, `[chunk, chosen]`.
    pub(crate) expert: Buffer<u32>,
    /// The weights of these experts, `[chunk, chosen]`.
    pub(crate) weight: Buffer<f32>,
    /// The sorted row of each token and slot, `[chunk, chosen]`.
    pub(crate) place: Buffer<u32>,
    /// The token of each sorted row, `[rows]`.
    pub(crate) source: Buffer<u32>,
    /// The expert of each group of sorted rows, `[rows / 8]`: no group is smaller.
    pub(crate) group_expert: Buffer<u32>,
    /// The number of sorted rows, `[1]`.
    pub(crate) used: Buffer<u32>,
    /// The sorted rows of the normed residual stream.
    pub(crate) normed: Panels,
    /// The sum of squares of each sorted row, `[rows]`.
    pub(crate) squares: Buffer<f32>,
    /// The gated output of gate and up.
    pub(crate) inner: Panels,
    /// The output of the down projection, `[rows, hidden]`.
    pub(crate) y: Buffer<f32>,
}

/// The largest sizes of the mixtures of a model.
struct LargestExperts {
    count: u32,
    chosen: u32,
    width: u32,
    /// The number of sorted rows.
    rows: u32,
}

impl LargestExperts {
    /// Returns the sizes, or `None` if the model has no experts.
    fn of(c: &Config) -> Option<LargestExperts> {
        let most = |size: fn(&Experts) -> u32| c.experts().map(size).max();
        Some(LargestExperts {
            count: most(|experts| experts.count)?,
            chosen: most(|experts| experts.chosen)?,
            width: most(|experts| experts.width)?,
            rows: most_rows(c),
        })
    }
}

impl ExpertBuffers {
    /// Allocates the buffers, or returns `None` if the model has no experts.
    pub(crate) fn new(context: &Context, c: &Config) -> Result<Option<ExpertBuffers>, Error> {
        let Some(LargestExperts {
            count,
            chosen,
            width,
            rows,
        }) = LargestExperts::of(c)
        else {
            return Ok(None);
        };
        let floats = |name: &str, rows: u32, len: u32| -> Result<Buffer<f32>, Error> {
            Ok(Buffer::uninit(context, rows as usize * len as usize)?.labelled(name))
        };
        let words = |name: &str, rows: u32, len: u32| -> Result<Buffer<u32>, Error> {
            Ok(Buffer::uninit(context, rows as usize * len as usize)?.labelled(name))
        };
        Ok(Some(ExpertBuffers {
            logits: floats("experts.logits", CHUNK, count)?,
            expert: words("experts.expert", CHUNK, chosen)?,
            weight: floats("experts.weight", CHUNK, chosen)?,
            place: words("experts.place", CHUNK, chosen)?,
            source: words("experts.source", rows, 1)?,
            group_expert: words("experts.group_expert", rows / 8, 1)?,
            used: words("experts.used", 1, 1)?,
            normed: Panels::uninit(context, "experts.normed", rows, c.hidden)?,
            squares: floats("experts.squares", rows, 1)?,
            // Gate and up store no padding rows, and down multiplies them and discards the results.
            inner: Panels::new(context, "experts.inner", rows, width)?,
            y: floats("experts.y", rows, c.hidden)?,
        }))
    }
}

/// Returns the bytes of all buffers.
pub(crate) fn bytes(c: &Config) -> u64 {
    LargestExperts::of(c).map_or(0, |sizes| {
        let LargestExperts {
            count,
            chosen,
            width,
            rows,
        } = sizes;
        let [count, chosen, width, hidden] = [count, chosen, width, c.hidden].map(u64::from);
        let of_token = 4 * (count + 3 * chosen);

        // Besides the activations, a sorted row has a source, squares and two scales. A word for each
        // row is more than the experts of the groups need.
        let of_row = 2 * (hidden + width) + 4 * (hidden + 5);
        u64::from(CHUNK) * of_token + u64::from(rows) * of_row + 4
    })
}

#[cfg(test)]
mod tests {
    use warpwright_driver::Driver;
    use warpwright_driver::memory::Element;
    use warpwright_model::Outline;
    use warpwright_model::layer::{ExpertWeighting, FeedForward, GateActivation};
    use warpwright_model::shape::{QUANTIZATIONS, SHAPES};

    use super::*;

    fn size<T: Element>(buffer: &Buffer<T>) -> u64 {
        (buffer.len() * size_of::<T>()) as u64
    }

    /// The check of the free memory must not count less than is allocated, nor much more.
    #[test]
    fn all_buffers_are_counted() {
        let driver = Driver::from_library(warpwright_cuda_emu::library()).unwrap();
        let context = Context::new(&driver.devices().unwrap()[0]).unwrap();
        let mut c = Outline::of(&SHAPES[0], QUANTIZATIONS[0]).unwrap().config;
        assert_eq!(bytes(&c), 0);
        assert!(ExpertBuffers::new(&context, &c).unwrap().is_none());

        let layers = c.layers.iter_mut().zip([(5, 2, 256), (40, 1, 128)]);
        for (layer, (count, chosen, width)) in layers {
            layer.feed_forward = FeedForward::Experts(Experts {
                count,
                chosen,
                width,
                activation: GateActivation::Silu,
                weighting: ExpertWeighting::Softmax,
                weight_scale: 1.0,
                shared: None,
                biases: false,
            });
        }
        let b = ExpertBuffers::new(&context, &c).unwrap().unwrap();
        let floats = [&b.logits, &b.weight, &b.squares, &b.y];
        let words = [&b.expert, &b.place, &b.source, &b.group_expert, &b.used];
        let panels = [&b.normed, &b.inner].map(|p| size(&p.values) + size(&p.scale));
        let allocated = floats.map(size).into_iter().chain(words.map(size));
        let allocated = allocated.chain(panels).sum::<u64>();
        let counted = bytes(&c);
        assert!(
            (allocated..allocated + allocated / 100).contains(&counted),
            "{allocated} allocated, {counted} counted"
        );
    }
}
