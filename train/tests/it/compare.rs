//! How far adapters, or their gradients, are from others.

use warpwright_train::reference::Adapters;

use crate::setup::NAMES;

/// The tensors of adapters, under the names of fixtures: `0.q.A`.
pub(crate) fn named(adapters: &Adapters) -> Vec<(String, &[f64])> {
    let mut found = vec![];
    for (l, layer) in adapters.layers.iter().enumerate() {
        for (name, adapter) in NAMES
            .iter()
            .zip(layer)
            .filter_map(|(name, a)| Some((name, a.as_ref()?)))
        {
            found.push((format!("{l}.{name}.A"), &adapter.a[..]));
            found.push((format!("{l}.{name}.B"), &adapter.b[..]));
        }
    }
    found
}

/// Relative L2.
pub(crate) fn distance(found: &[f64], wanted: &[f64]) -> f64 {
    assert_eq!(found.len(), wanted.len());
    let apart: f64 = found.iter().zip(wanted).map(|(f, w)| (f - w).powi(2)).sum();
    let norm: f64 = wanted.iter().map(|w| w * w).sum();
    if apart == 0.0 {
        0.0
    } else {
        (apart / norm).sqrt()
    }
}

/// The largest relative L2 distance of a tensor, and which. NaN, of either sign, is the largest.
pub(crate) fn worst(found: &Adapters, wanted: &Adapters) -> (f64, String) {
    let tensors = named(found).into_iter().zip(named(wanted));
    let apart = tensors.map(|((name, found), (_, wanted))| (distance(found, wanted).abs(), name));
    apart.max_by(|(a, _), (b, _)| a.total_cmp(b)).unwrap()
}
