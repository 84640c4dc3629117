//! Command lines as a user types them into a POSIX shell.

/// Quotes a word for a POSIX shell, if it needs that.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=,@%+~".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_a_shell_would_read_them() {
        let cases = [
            ("x=in:f32:2", "x=in:f32:2"),
            ("", "''"),
            ("it's", r"'it'\''s'"),
            ("a;b", "'a;b'"),
        ];
        for (word, wanted) in cases {
            assert_eq!(quoted(word), wanted);
        }
    }
}
