//! Chains of instructions that pass a carry.

use super::case::Exact;
use super::scalar::Form;

/// Chains of three, whose results are `X`, `Y` and `Z`. `T` is a type; the last one reads the
/// carry.
const CHAINS: [&str; 10] = [
    "add.cc.T X, %a, %b;\naddc.cc.T Y, %c, %e;\naddc.T Z, 0, 0",
    "sub.cc.T X, %a, %b;\nsubc.cc.T Y, %c, %e;\nsubc.T Z, 0, 0",
    "sub.cc.T X, %a, %b;\naddc.cc.T Y, %c, %e;\nsubc.T Z, %a, %e",
    "add.cc.T X, %a, %b;\nsubc.cc.T Y, %c, %e;\naddc.T Z, %b, %c",
    "mad.lo.cc.T X, %a, %b, %c;\nmadc.hi.cc.T Y, %a, %b, %e;\naddc.T Z, 0, 0",
    "mad.hi.cc.T X, %a, %b, %c;\nmadc.lo.cc.T Y, %c, %e, %a;\naddc.T Z, 0, 0",
    "mad.lo.cc.T X, %a, %b, %c;\nmadc.lo.T Y, %a, %c, %e;\nmadc.hi.T Z, %b, %c, %e",
    "mad.hi.cc.T X, %a, %b, %c;\nmadc.hi.T Y, %a, %c, %e;\nsubc.T Z, %b, %c",
    "add.cc.T X, %a, %b;\nmadc.lo.cc.T Y, %c, %e, %b;\nsubc.T Z, %a, 0",
    "sub.cc.T X, %a, %b;\nmadc.hi.cc.T Y, %c, %e, %b;\naddc.T Z, %a, 0",
];

pub(crate) fn forms() -> Vec<Form> {
    let mut all = vec![];
    let form = |text: String, types: &str| Form {
        text,
        types: types.into(),
        exact: Exact::Bits,
    };
    let chain = |chain: &str, ty: &str, [x, y, z]: [&str; 3]| {
        chain
            .replace('T', ty)
            .replace('X', x)
            .replace('Y', y)
            .replace('Z', z)
    };
    for text in CHAINS {
        for (ty, end) in ["u32", "s32"]
            .into_iter()
            .flat_map(|ty| [(ty, "{%x, %y}"), (ty, "{%y, %z}")])
        {
            let text = format!(
                "{};\nmov.b64 %d, {end}",
                chain(text, ty, ["%x", "%y", "%z"])
            );
            all.push(form(text, "b64 = b32 b32 b32 b32"));
        }
        for (ty, end) in ["u64", "s64"]
            .into_iter()
            .flat_map(|ty| [(ty, "%u"), (ty, "%v"), (ty, "%s")])
        {
            let text = format!(
                "{};\nmov.b64 %d, {end}",
                chain(text, ty, ["%u", "%v", "%s"])
            );
            all.push(form(text, "b64 = b64 b64 b64 b64"));
        }
    }

    all
}
