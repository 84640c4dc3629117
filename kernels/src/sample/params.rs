//! The sampling parameters of a sequence, as words in device memory.

use super::limits::LISTED;
use super::weight::scale;
use ptx_gen::*;

/// The sampling parameters of a sequence.
///
/// [`SampleParams::OFF`] filters nothing, and [`SampleParams::GREEDY`] takes the first token.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SampleParams {
    /// The key of the random words.
    pub seed: u64,
    /// The number of tokens that top-k keeps. 0 keeps all tokens.
    pub top_k: u32,
    /// The probability of top-p in units of 2^-32. 0 keeps all tokens. See [`SampleParams::share`].
    pub top_p: u32,
    /// The probability of typical-p in units of 2^-32. 0 keeps all tokens.
    pub typical_p: u32,
    /// The logarithm of min-p: a token is kept if its logit minus the largest logit is at least
    /// this. Negative infinity keeps all tokens.
    pub min_gap: f32,
    /// `log2(e) / temperature` as the sum of two numbers, from [`scale`].
    pub scale: [f32; 2],
    /// The repetition penalty. It divides the logit of a token of the window if the logit is
    /// positive, and multiplies it otherwise.
    pub repeat: f32,
    /// The presence penalty, which is subtracted once from the logit of a token of the window.
    pub presence: f32,
    /// The frequency penalty, which is subtracted for each time that a token is in the window.
    pub frequency: f32,
    /// The number of latest tokens that are penalized, at most
    /// [`MAX_WINDOW`](super::limits::MAX_WINDOW).
    pub window: u32,
    /// The number of entries of the sequence's biases.
    pub biases: u32,
    /// The number of best tokens whose log-probabilities are recorded.
    pub best: u32,
}

/// The number of words of [`SampleParams`].
pub(crate) const WORDS: usize = 16;

impl SampleParams {
    /// The number of words of a sequence.
    pub const WORDS: usize = WORDS;

    /// Parameters that filter and penalize nothing, at temperature 1.
    pub const OFF: SampleParams = SampleParams {
        seed: 0,
        top_k: 0,
        top_p: 0,
        typical_p: 0,
        min_gap: f32::NEG_INFINITY,
        scale: scale(1.0),
        repeat: 1.0,
        presence: 0.0,
        frequency: 0.0,
        window: 0,
        biases: 0,
        best: 0,
    };

    /// Parameters that take the token of the largest logit, and the lowest one of equals.
    pub const GREEDY: SampleParams = SampleParams {
        top_k: 1,
        ..SampleParams::OFF
    };

    /// Returns a probability in units of 2^-32, at least one unit. A probability of 1 or more gives
    /// 0, with which the filters keep all tokens.
    ///
    /// # Example
    ///
    /// ```
    /// use warpwright_kernels::sample::SampleParams;
    ///
    /// let params = SampleParams {
    ///     top_k: 40,
    ///     top_p: SampleParams::share(0.5),
    ///     ..SampleParams::OFF
    /// };
    /// assert_eq!(params.top_p, 1 << 31);
    /// assert_eq!(SampleParams::share(1.0), 0);
    /// ```
    pub fn share(p: f64) -> u32 {
        let units = (p * 2f64.powi(32)).round();
        if p >= 1.0 {
            0
        } else {
            units.clamp(1.0, f64::from(u32::MAX)) as u32
        }
    }

    /// Returns true if the choice needs the masses of all tokens. It does not if top-k keeps few
    /// tokens and no log-probability is recorded.
    pub(crate) fn needs_masses(&self) -> bool {
        !(1..=LISTED).contains(&self.top_k) || self.best > 0
    }

    /// Returns the words that the kernels load, in the order of the fields.
    pub fn words(&self) -> [u32; WORDS] {
        let [repeat, presence, frequency] =
            [self.repeat, self.presence, self.frequency].map(f32::to_bits);
        let [hi, lo] = self.scale.map(f32::to_bits);
        let SampleParams {
            seed,
            top_k,
            top_p,
            typical_p,
            window,
            biases,
            best,
            ..
        } = *self;
        let low = seed as u32;
        let high = (seed >> 32) as u32;
        let gap = self.min_gap.to_bits();

        // The last words are zeros that make a row a multiple of 16 bytes, for loads of vectors.
        [
            low, high, top_k, top_p, typical_p, gap, hi, lo, repeat, presence, frequency, window,
            biases, best, 0, 0,
        ]
    }

    /// Returns the parameters with these words.
    ///
    /// # Panics
    ///
    /// Panics if there are fewer than 14 words.
    pub fn of_words(words: &[u32]) -> SampleParams {
        let float = |i: usize| f32::from_bits(words[i]);
        SampleParams {
            seed: u64::from(words[0]) | u64::from(words[1]) << 32,
            top_k: words[2],
            top_p: words[3],
            typical_p: words[4],
            min_gap: float(5),
            scale: [float(6), float(7)],
            repeat: float(8),
            presence: float(9),
            frequency: float(10),
            window: words[11],
            biases: words[12],
            best: words[13],
        }
    }
}

/// The sampling parameters of a sequence in the registers of a thread.
pub(crate) struct DeviceParams<'k> {
    pub(crate) seed: [U32<'k>; 2],
    pub(crate) top_k: U32<'k>,
    pub(crate) top_p: U32<'k>,
    pub(crate) typical_p: U32<'k>,
    pub(crate) min_gap: F32<'k>,
    pub(crate) scale: [F32<'k>; 2],
    /// The repetition, presence and frequency penalties.
    pub(crate) penalties: [F32<'k>; 3],
    pub(crate) window: U32<'k>,
    pub(crate) biases: U32<'k>,
    pub(crate) best: U32<'k>,
}

impl<'k> DeviceParams<'k> {
    /// Loads the parameters of a sequence.
    pub(crate) fn load(params: Ptr<'k, u32, ReadOnly>, sequence: U32<'k>) -> Self {
        let words = params.row(sequence, 4 * WORDS as u32);
        let four = |i: u32| words.at(i).ld4();
        let [low, high, top_k, top_p] = four(0);
        let [typical_p, gap, hi, lo] = four(4);
        let [repeat, presence, frequency, window] = four(8);
        let [biases, best, ..] = four(12);
        DeviceParams {
            seed: [low, high],
            top_k,
            top_p,
            typical_p,
            min_gap: gap.bits(),
            scale: [hi.bits(), lo.bits()],
            penalties: [repeat.bits(), presence.bits(), frequency.bits()],
            window,
            biases,
            best,
        }
    }

    /// Returns [`SampleParams::needs_masses`] on the device.
    pub(crate) fn needs_masses(&self) -> Pred<'k> {
        // Without top-k, the difference wraps around.
        (self.top_k - 1).ge(LISTED) | self.best.gt(0)
    }

    /// Returns true if no filter but min-p is on, so that the draw needs no order of logits.
    pub(crate) fn is_unordered(&self) -> Pred<'k> {
        (self.top_k | self.top_p | self.typical_p).eq(0)
    }
}
