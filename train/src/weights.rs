//! The frozen weights of a model.

use crate::{Config, Error, Projection};

/// The weights of a model, with one type for vectors and another for matrices.
#[derive(Clone, Debug)]
pub struct Weights<V = Vec<f64>, M = V> {
    /// The embedding, `[vocab, hidden]`.
    pub embed: V,
    /// The LM head, `[vocab, hidden]`. A model without one uses `embed` (tied embeddings).
    pub head: Option<V>,
    /// The gains of the last norm, `[hidden]`.
    pub norm: V,
    /// The layers.
    pub layers: Vec<LayerWeights<V, M>>,
}

/// The weights of a layer.
#[derive(Clone, Debug)]
pub struct LayerWeights<V = Vec<f64>, M = V> {
    /// The gains of the norm before attention, `[hidden]`.
    pub attention_norm: V,
    /// The gains of the norm before the feed-forward block, `[hidden]`.
    pub feed_forward_norm: V,
    /// The gains of the queries' head norm, `[head_dim]`.
    pub q_norm: Option<V>,
    /// The gains of the keys' head norm, `[head_dim]`.
    pub k_norm: Option<V>,
    /// The projections, `[n, k]` each, in the order of [`Projection::ALL`].
    pub projections: [M; 7],
    /// The biases, `[n]` each, in the order of [`Projection::ALL`].
    pub biases: [Option<V>; 7],
}

/// The name of a tensor, for errors and labels, and its expected shape.
#[derive(Clone, Debug)]
pub(crate) struct NamedShape {
    pub(crate) name: String,
    pub(crate) shape: [usize; 2],
}

impl NamedShape {
    pub(crate) fn new(name: impl Into<String>, shape: [usize; 2]) -> NamedShape {
        NamedShape {
            name: name.into(),
            shape,
        }
    }

    /// Returns an error if a tensor does not have as many elements as its shape.
    pub(crate) fn check(self, found: usize) -> Result<(), Error> {
        let NamedShape { name, shape } = self;
        if found == shape[0] * shape[1] {
            return Ok(());
        }
        Err(Error::Length {
            tensor: name,
            found,
            shape,
        })
    }
}

impl<V, M> Weights<V, M> {
    /// Returns the matrix of the LM head.
    pub fn head(&self) -> &V {
        self.head.as_ref().unwrap_or(&self.embed)
    }

    /// Converts every tensor. The functions receive the tensor's name and its expected shape.
    pub(crate) fn try_map<W, N>(
        &self,
        config: &Config,
        vector: &mut dyn FnMut(NamedShape, &V) -> Result<W, Error>,
        matrix: &mut dyn FnMut(NamedShape, &M) -> Result<N, Error>,
    ) -> Result<Weights<W, N>, Error> {
        if self.layers.len() != config.layers {
            return Err(Error::Layers {
                found: self.layers.len(),
                wanted: config.layers,
            });
        }

        let table = [config.vocab, config.hidden];
        let layers = self.layers.iter().enumerate();
        Ok(Weights {
            embed: vector(NamedShape::new("the embedding", table), &self.embed)?,
            head: optional(&self.head, |head| {
                vector(NamedShape::new("the head", table), head)
            })?,
            norm: vector(
                NamedShape::new("the last norm", [1, config.hidden]),
                &self.norm,
            )?,
            layers: layers
                .map(|(l, layer)| layer.try_map(l, config, vector, matrix))
                .collect::<Result<_, _>>()?,
        })
    }
}

impl<V, M> LayerWeights<V, M> {
    pub(crate) fn try_map<W, N>(
        &self,
        l: usize,
        config: &Config,
        vector: &mut dyn FnMut(NamedShape, &V) -> Result<W, Error>,
        matrix: &mut dyn FnMut(NamedShape, &M) -> Result<N, Error>,
    ) -> Result<LayerWeights<W, N>, Error> {
        let named = |what: &str, shape| NamedShape::new(format!("{what} of layer {l}"), shape);
        let head = [1, config.head_dim];
        let mut projections = Vec::new();
        for (p, w) in Projection::ALL.into_iter().zip(&self.projections) {
            projections.push(matrix(named(p.name(), p.shape(config)), w)?);
        }

        let mut biases = Vec::new();
        for (p, bias) in Projection::ALL.into_iter().zip(&self.biases) {
            let name = || named(&format!("bias of {}", p.name()), [1, p.shape(config)[0]]);
            biases.push(optional(bias, |bias| vector(name(), bias))?);
        }

        Ok(LayerWeights {
            attention_norm: vector(
                named("attention norm", [1, config.hidden]),
                &self.attention_norm,
            )?,
            feed_forward_norm: vector(
                named("feed-forward norm", [1, config.hidden]),
                &self.feed_forward_norm,
            )?,
            q_norm: optional(&self.q_norm, |norm| vector(named("q norm", head), norm))?,
            k_norm: optional(&self.k_norm, |norm| vector(named("k norm", head), norm))?,
            projections: seven(projections),
            biases: seven(biases),
        })
    }
}

fn optional<T, U>(
    value: &Option<T>,
    convert: impl FnOnce(&T) -> Result<U, Error>,
) -> Result<Option<U>, Error> {
    value.as_ref().map(convert).transpose()
}

fn seven<T>(list: Vec<T>) -> [T; 7] {
    list.try_into()
        .unwrap_or_else(|_| unreachable!("the list has one element per projection"))
}
