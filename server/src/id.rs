//! Random ids, and the time.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

/// The number of characters after the prefix of an id: 24 of 62 letters and digits are more than
/// 128 bits.
const LEN: usize = 24;

const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Returns an id that is unique and cannot be guessed, such as `chatcmpl-4fT9..`.
pub fn random_id(prefix: &str) -> String {
    // Both states have random keys from the operating system. SipHash with a secret key is a
    // pseudorandom function, so hashes of a counter are random numbers.
    static KEYS: LazyLock<[RandomState; 2]> =
        LazyLock::new(|| [RandomState::new(), RandomState::new()]);
    static COUNTER: AtomicU64 = AtomicU64::new(0);

    let count = COUNTER.fetch_add(1, Ordering::Relaxed);
    let mut id = String::with_capacity(prefix.len() + LEN);
    id.push_str(prefix);
    for keys in &*KEYS {
        let mut bits = keys.hash_one(count);
        // Eleven digits of base 62 exceed 64 bits, so the twelfth comes from a second hash.
        for position in 0..LEN / 2 {
            if position == LEN / 4 {
                bits = keys.hash_one((count, position));
            }
            let digit = (bits % ALPHABET.len() as u64) as usize;
            id.push(char::from(ALPHABET[digit]));
            bits /= ALPHABET.len() as u64;
        }
    }
    id
}

/// Returns a random salt, with which a request shares no cached prefix.
pub fn random_salt() -> u64 {
    RandomState::new().hash_one(0_u8)
}

/// Returns the number of seconds since 1970.
pub fn unix_seconds() -> u64 {
    // The clock of a machine can be set before 1970, where there is no such number.
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |elapsed| elapsed.as_secs())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn ids_are_unique_and_have_the_same_form() {
        let ids: BTreeSet<String> = (0..10_000).map(|_| random_id("call_")).collect();
        assert_eq!(ids.len(), 10_000);
        for id in ids {
            let rest = id.strip_prefix("call_").unwrap();
            assert_eq!(rest.len(), LEN);
            assert!(rest.bytes().all(|byte| byte.is_ascii_alphanumeric()));
        }
    }

    #[test]
    fn every_character_varies() {
        let ids: Vec<String> = (0..1000).map(|_| random_id("")).collect();
        for position in 0..LEN {
            let seen: BTreeSet<u8> = ids.iter().map(|id| id.as_bytes()[position]).collect();
            assert!(seen.len() > 40, "position {position} has {}", seen.len());
        }
    }
}
