//! Sparse matmuls (`mma.sp`) with random metadata. Half of the elements of the left matrix are
//! stored.

use super::case::Cases;
use super::fragments::{Family, Product, both, names, sizes};

/// Families, and the number of selectors.
const SPARSE: &[(Family, usize)] = &[
    (("m16n8k16", "{f16,f32}", "f16", ""), 4),
    (("m16n8k32", "{f16,f32}", "f16", ""), 2),
    (("m16n8k16", "f32", "bf16", ""), 4),
    (("m16n8k32", "f32", "bf16", ""), 2),
    (("m16n8k8", "f32", "tf32", ""), 4),
    (("m16n8k16", "f32", "tf32", ""), 2),
    (("m16n8k64", "f32", "{e4m3,e5m2}", "{e4m3,e5m2}"), 1),
    (("m16n8k32", "{s32,s32.sat}", "{s8,u8}", "{s8,u8}"), 2),
    (("m16n8k64", "{s32,s32.sat}", "{s8,u8}", "{s8,u8}"), 1),
    (("m16n8k64", "{s32,s32.sat}", "{s4,u4}", "{s4,u4}"), 2),
    (("m16n8k128", "{s32,s32.sat}", "{s4,u4}", "{s4,u4}"), 1),
];

pub(crate) fn cases() -> Cases {
    Box::new(SPARSE.iter().flat_map(|(family, selectors)| {
        let selectors = *selectors;
        names(family)
            .into_iter()
            .flat_map(move |(shape, flag, types)| {
                let [sum, left, right] = types;
                let clamp = if flag == "sat" { ".satfinite" } else { "" };
                let kinds = [(false, "sp"), (true, "sp::ordered_metadata")];
                let all = kinds
                    .into_iter()
                    .flat_map(move |kind| (0..selectors).map(move |selector| (kind, selector)));
                all.flat_map(move |((ordered, kind), selector)| {
                    let name = format!(
                        "mma.{kind}.sync.aligned.{shape}.row.col{clamp}.{sum}.{left}.{right}.{sum}"
                    );
                    both(&Product {
                        name,
                        shape: sizes(&shape),
                        types,
                        sparse: Some((ordered, selector)),
                    })
                })
            })
    }))
}
