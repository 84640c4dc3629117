//! The content of buffers before a launch, and the content that is expected after it.

use ptx_emu::check::ElementType;

use super::npy;
use super::value::{Fill, no_value};

/// Returns the bytes of `count` elements.
///
/// # Errors
/// Returns a message if a value does not suit the type, if a file has another shape, or if there is
/// not enough memory.
pub(crate) fn fill(
    fill: &Fill,
    element: ElementType,
    count: usize,
    seed: u64,
) -> Result<Vec<u8>, String> {
    match fill {
        Fill::Zeros => repeated(&vec![0; element.bytes()], count),
        Fill::Const(text) => repeated(
            &element
                .encode(text)
                .ok_or_else(|| no_value(text, element))?,
            count,
        ),
        Fill::Iota => made(element, count, |i| element.encode_float(i as f64)),
        Fill::Random(range) => random(element, count, *range, seed),
        Fill::Values(values) => listed(values, element, count),
        Fill::File(path) => {
            let array = npy::read(path)?;
            let found = array.count();
            let name = array.element.name();
            if array.element != element || found != count {
                let wanted = element.name();
                return Err(format!(
                    "{}: {found} elements of {name}, not {count} of {wanted}",
                    path.display()
                ));
            }

            Ok(array.bytes)
        }
    }
}

/// Returns the bytes of a list of values.
///
/// # Errors
/// Returns a message if a value does not suit the type.
pub(crate) fn values(values: &[String], element: ElementType) -> Result<Vec<u8>, String> {
    let bytes = |text: &String| element.encode(text).ok_or_else(|| no_value(text, element));
    Ok(values
        .iter()
        .map(bytes)
        .collect::<Result<Vec<_>, _>>()?
        .concat())
}

/// Returns the bytes of a list that must have `count` values.
fn listed(texts: &[String], element: ElementType, count: usize) -> Result<Vec<u8>, String> {
    if texts.len() != count {
        return Err(format!(
            "{} values for {count} elements; const:VALUE repeats a value",
            texts.len()
        ));
    }
    values(texts, element)
}

/// Allocates an empty vector with capacity for `count` elements. A buffer that is too large must
/// not abort the program.
fn room(element: ElementType, count: usize) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let size = count.checked_mul(element.bytes());
    match size.map(|size| bytes.try_reserve_exact(size)) {
        Some(Ok(())) => Ok(bytes),
        _ => Err(format!(
            "not enough memory for {count} elements of {}",
            element.name()
        )),
    }
}

/// Returns the bytes of `count` copies of an element.
fn repeated(one: &[u8], count: usize) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let size = count.checked_mul(one.len());
    if size.is_none_or(|size| bytes.try_reserve_exact(size).is_err()) {
        return Err(format!(
            "not enough memory for {count} elements of {} bytes",
            one.len()
        ));
    }

    for _ in 0..count {
        bytes.extend(one);
    }

    Ok(bytes)
}

/// Returns the bytes of `count` elements that a function computes from their index.
fn made(
    element: ElementType,
    count: usize,
    f: impl FnMut(usize) -> Vec<u8>,
) -> Result<Vec<u8>, String> {
    let mut bytes = room(element, count)?;
    bytes.extend((0..count).flat_map(f));
    Ok(bytes)
}

/// Returns the bytes of random elements. By default, floats are from -1 to 1 and integers from 0 to
/// 99.
fn random(
    element: ElementType,
    count: usize,
    range: Option<(f64, f64)>,
    seed: u64,
) -> Result<Vec<u8>, String> {
    let (low, high) = range.unwrap_or(if element.is_float() {
        (-1.0, 1.0)
    } else {
        (0.0, 100.0)
    });
    let mut state = mix(seed);
    made(element, count, |_| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let unit = (mix(state) >> 11) as f64 / (1u64 << 53) as f64;
        let value = low + (high - low) * unit;
        element.encode_float(if element.is_float() {
            value
        } else {
            value.floor()
        })
    })
}

/// Computes the output function of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
fn mix(x: u64) -> u64 {
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, element: ElementType, count: usize) -> Result<String, String> {
        let bytes = fill(&text.parse()?, element, count, 3)?;
        Ok(bytes
            .chunks(element.bytes())
            .map(|bytes| element.show(bytes))
            .collect::<Vec<_>>()
            .join(" "))
    }

    #[test]
    fn elements_are_made() {
        use ElementType::*;
        let cases = [
            ("zeros", F32, 2, Ok("0 0")),
            ("iota", U8, 3, Ok("0 1 2")),
            ("iota", F16, 3, Ok("0 1 2")),
            ("const:-2.5", F32, 2, Ok("-2.5 -2.5")),
            ("7,8", S32, 2, Ok("7 8")),
            (
                "7,8",
                S32,
                3,
                Err("2 values for 3 elements; const:VALUE repeats a value"),
            ),
            ("7,x", S32, 2, Err("\"x\" is not a value of type s32")),
            ("const:300", U8, 1, Err("\"300\" is not a value of type u8")),
            (
                "zeros",
                F64,
                usize::MAX,
                Err("not enough memory for 18446744073709551615 elements of 8 bytes"),
            ),
        ];
        for (text, element, count, wanted) in cases {
            let found = shown(text, element, count);
            assert_eq!(found.as_deref().map_err(String::as_str), wanted, "{text}");
        }
    }

    #[test]
    fn random_numbers_follow_from_the_seed_and_stay_in_their_range() {
        let made = |seed| fill(&Fill::Random(None), ElementType::F32, 1000, seed).unwrap();
        assert_eq!(made(1), made(1));
        assert_ne!(made(1), made(2));
        let within = |text: &str, element: ElementType, low: f64, high: f64| {
            let bytes = fill(&text.parse().unwrap(), element, 1000, 7).unwrap();
            let values: Vec<f64> = bytes
                .chunks(element.bytes())
                .map(|bytes| element.value(bytes))
                .collect();
            let (least, most) = values
                .iter()
                .fold((f64::MAX, f64::MIN), |(a, b), v| (a.min(*v), b.max(*v)));
            let tenth = (high - low) / 10.0;
            assert!(
                (low..low + tenth).contains(&least) && (high - tenth..=high).contains(&most),
                "{least} {most}"
            );
        };
        within("rand", ElementType::F32, -1.0, 1.0);
        within("rand", ElementType::S32, 0.0, 99.0);
        within("rand:-5:300", ElementType::S16, -5.0, 299.0);
        within("rand:2:3", ElementType::F64, 2.0, 3.0);
    }
}
