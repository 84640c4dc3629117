//! The feed-forward of a layer.

/// The activation function of the gate in a feed-forward network.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum GateActivation {
    /// SiLU: `g / (1 + e^-g)`.
    Silu,
    /// GELU in its approximation with tanh (Hendrycks and Gimpel, 2016, arXiv:1606.08415): `g / 2 *
    /// (1 + tanh(u))` with `u = sqrt(2 / pi) * (g + 0.044715 g^3)`.
    GeluTanh,
    /// The clamped SwiGLU of gpt-oss: `(u + 1) * g * sigmoid(1.702 g)` replaces the product of the
    /// activation of the gate `g` and the up projection `u`. Both are bounded before: `g <= 7` and
    /// `-7 <= u <= 7`.
    ClampedSwiglu,
}

/// A feed-forward that every token passes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dense {
    /// The number of rows of the up matrix, and of the gate matrix if there is one.
    pub width: u32,
    /// The activation function.
    pub activation: GateActivation,
    /// The form of the network.
    pub form: DenseForm,
}

/// The form of a dense feed-forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DenseForm {
    /// `Wdown (activation(Wgate x) * Wup x)`.
    Gated,
    /// `Wdown activation(Wup x + bup) + bdown`, without a gate and with biases.
    PlainBiased,
}

/// A mixture of experts: several gated feed-forwards, of which each token passes a few.
///
/// A router computes one logit per expert, `r = Wrouter x`, in F32. The chosen experts are those
/// with the largest logits, and of equal logits the one with the lower index comes first. The output
/// is the sum of `p_e * Wdown_e (activation(Wgate_e x) * Wup_e x)` over the chosen experts `e`, plus
/// the output of the shared expert. [`weighting`](field@Experts::weighting) defines `p_e`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Experts {
    /// The number of experts of the layer.
    pub count: u32,
    /// The number of experts that a token passes, from 1 to `count`.
    pub chosen: u32,
    /// The number of rows of the gate and up matrices of one expert.
    pub width: u32,
    /// The activation function of the gates, also that of the shared expert.
    pub activation: GateActivation,
    /// The weights `p_e` of the chosen experts, from the logits of the router.
    pub weighting: ExpertWeighting,
    /// The factor of the weights `p_e`, or 1 without one.
    pub weight_scale: f32,
    /// The expert that every token passes, if there is one.
    pub shared: Option<SharedExpert>,
    /// Whether the router and the three projections of the experts have biases.
    pub biases: bool,
}

impl Experts {
    /// Returns the mean share of the experts that `tokens` tokens read together, if each of them
    /// chooses its experts at random.
    pub fn share_read(&self, tokens: u32) -> f64 {
        let unread = 1.0 - f64::from(self.chosen) / f64::from(self.count);
        1.0 - unread.powi(tokens.try_into().unwrap_or(i32::MAX))
    }
}

/// The weights of the chosen experts, before [`weight_scale`](field@Experts::weight_scale).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpertWeighting {
    /// The softmax over the logits of all experts. The chosen experts keep their share, so their
    /// weights add up to less than 1.
    Softmax,
    /// The softmax over the logits of the chosen experts only. It equals the softmax over all
    /// experts, divided by its sum over the chosen ones.
    SoftmaxOfChosen,
}

/// An expert that every token passes in addition to the chosen ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedExpert {
    /// The number of rows of the gate and up matrices.
    pub width: u32,
    /// Whether the output is multiplied by `sigmoid(w . x)`, with `w` a vector of the layer. Without
    /// a gate, the output is added as it is.
    pub gated: bool,
}
