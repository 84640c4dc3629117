//! The feed-forward of a layer.

/// The activation function of the gate in a feed-forward network.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum GateActivation {
    /// SiLU: `g / (1 + e^-g)`.
    Silu,
    /// GELU in its approximation with tanh (Hendrycks and Gimpel, 2016, arXiv:1606.08415): `g / 2 *
    /// (1 + tanh(u))` with `u = sqrt(2 / pi) * (g + 0.044715 g^3)`.
    GeluTanh,
}

/// A gated feed-forward that every token passes: `Wdown (activation(Wgate x) * Wup x)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dense {
    /// The number of rows of the gate and up matrices.
    pub width: u32,
    /// The activation function of the gate.
    pub activation: GateActivation,
}
