//! The properties that the pages of a batch must share with saved pages, and the keys of pages.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use warpwright_kernels::shared::cache::PAGE;

use super::fingerprint::ModelFingerprint;
use crate::batch::pages::prefixes::PrefixScope;

/// The version of the file format. It changes with the meaning of the bytes.
const VERSION: u32 = 1;

/// The properties of a batch that determine what the bytes of a page mean, and which bits they
/// have. Saved pages are used only if all of them are equal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PageFormat {
    /// The properties as JSON, with the keys in order.
    properties: Value,
    /// The hash of the properties.
    hash: [u8; 32],
    /// The 64-bit words of a page.
    page_words: usize,
}

/// The properties of a batch that a [`PageFormat`] is made of.
#[derive(Debug, Clone)]
pub(crate) struct PageProperties {
    pub(crate) model: ModelFingerprint,
    /// The name and the compute capability of the device.
    pub(crate) device: String,
    /// The kernels that compute keys and values.
    pub(crate) kernels: String,
    /// The number of KV heads and the head dimension of each layer.
    pub(crate) layers: Vec<(u32, u32)>,
    /// The rotation of keys, as the bits of all frequencies.
    pub(crate) frequencies: Vec<u32>,
    pub(crate) page_words: usize,
}

/// The key of a page: a hash of its format, of the key of the page before it, of its scope and of
/// its tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PageKey([u8; 32]);

impl PageFormat {
    pub(crate) fn new(properties: &PageProperties) -> PageFormat {
        let frequencies = properties.frequencies.iter();
        let frequencies = frequencies.flat_map(|bits| bits.to_le_bytes());
        let frequencies = Sha256::digest(frequencies.collect::<Vec<u8>>());
        let properties_json = json!({
            "version": VERSION,
            "program": env!("CARGO_PKG_VERSION"),
            "model": hex(&properties.model.0),
            "device": properties.device,
            "kernels": properties.kernels,
            "positions": PAGE,
            "layers": properties.layers,
            "rotation": hex(&frequencies),
            "elements": "f16",
            "byte_order": "little",
            "bytes": 8 * properties.page_words,
        });
        let hash = Sha256::digest(properties_json.to_string());
        PageFormat {
            properties: properties_json,
            hash: hash.into(),
            page_words: properties.page_words,
        }
    }

    pub(crate) fn properties(&self) -> &Value {
        &self.properties
    }

    pub(crate) fn page_words(&self) -> usize {
        self.page_words
    }

    /// Returns the reason why pages with other properties cannot be used, or `None` if all are
    /// equal.
    pub(crate) fn difference(&self, other: &Value) -> Option<String> {
        if self.properties == *other {
            return None;
        }

        let names = self.properties.as_object().into_iter().flatten();
        let different = names.filter(|(name, value)| other.get(name) != Some(value));
        let different: Vec<String> = different
            .map(|(name, value)| match other.get(name) {
                Some(other) => format!("{name} is {other} and not {value}"),
                None => format!("{name} is missing"),
            })
            .collect();
        if different.is_empty() {
            return Some("it has properties that this version does not know".to_owned());
        }
        Some(different.join(", "))
    }

    /// Returns the key of a page.
    pub(crate) fn key(
        &self,
        parent: Option<PageKey>,
        scope: PrefixScope,
        tokens: &[u32],
    ) -> PageKey {
        let mut hash = Sha256::new();
        hash.update(self.hash);
        // No key consists of zeros.
        hash.update(parent.map_or([0; 32], |parent| parent.0));
        for part in [scope.salt, scope.adapter, scope.class] {
            hash.update(part.to_le_bytes());
        }
        for token in tokens {
            hash.update(token.to_le_bytes());
        }
        PageKey(hash.finalize().into())
    }
}

impl PageKey {
    /// Reads a key from its hexadecimal digits.
    pub(crate) fn parse(text: &str) -> Option<PageKey> {
        if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }

        let mut key = [0; 32];
        for (index, byte) in key.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * index..2 * index + 2], 16).ok()?;
        }
        let key = PageKey(key);
        // Each key has one name.
        (key.to_string() == text).then_some(key)
    }
}

impl std::fmt::Display for PageKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn properties() -> PageProperties {
        PageProperties {
            model: ModelFingerprint([3; 32]),
            device: "device".to_owned(),
            kernels: "kernels".to_owned(),
            layers: vec![(2, 64); 2],
            frequencies: vec![1, 2],
            page_words: 24,
        }
    }

    #[test]
    fn each_property_counts_and_is_named() {
        let format = PageFormat::new(&properties());
        type Change = (&'static str, fn(&mut PageProperties));
        let changes: [Change; 6] = [
            ("model", |p| p.model.0[31] = 4),
            ("device", |p| p.device.push('2')),
            ("kernels", |p| p.kernels.clear()),
            ("layers", |p| p.layers[1].0 = 4),
            ("rotation", |p| p.frequencies.swap(0, 1)),
            ("bytes", |p| p.page_words += 1),
        ];
        let key = |format: &PageFormat| format.key(None, PrefixScope::default(), &[1]);
        for (name, change) in changes {
            let mut other = properties();
            change(&mut other);
            let other = PageFormat::new(&other);
            let reason = format.difference(other.properties()).unwrap();
            assert!(reason.starts_with(&format!("{name} is ")), "{reason}");
            assert_ne!(key(&format), key(&other));
        }
        assert_eq!(format.difference(format.properties()), None);
        assert!(
            format
                .difference(&json!({}))
                .unwrap()
                .contains("version is missing")
        );
        let mut more = format.properties().clone();
        more["more"] = json!(1);
        assert!(format.difference(&more).is_some());
    }

    #[test]
    fn keys_depend_on_everything_before() {
        let format = PageFormat::new(&properties());
        let scope = PrefixScope::salted(1);
        let root = format.key(None, scope, &[1; 64]);
        let others = [
            format.key(Some(root), scope, &[1; 64]),
            format.key(None, PrefixScope::salted(2), &[1; 64]),
            format.key(
                None,
                PrefixScope {
                    adapter: 1,
                    ..scope
                },
                &[1; 64],
            ),
            format.key(None, PrefixScope { class: 1, ..scope }, &[1; 64]),
            format.key(None, scope, &[2; 64]),
        ];
        assert!(others.iter().all(|other| *other != root));
        assert_eq!(PageKey::parse(&root.to_string()), Some(root));
        for bad in ["", "00", &"g".repeat(64), &"é".repeat(32), &"A".repeat(64)] {
            assert_eq!(PageKey::parse(bad), None, "{bad}");
        }
    }
}
