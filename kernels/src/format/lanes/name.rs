//! The name of a format in the sections of a program.

/// ggml's name of a format, for example `Q4_K`.
///
/// The parts of a format hold its name and not the [`Format`](crate::format::Format), because the
/// table of formats uses them.
#[derive(Clone, Copy)]
pub(crate) struct FormatName(pub(crate) &'static str);

impl FormatName {
    /// Returns ggml's name.
    pub(crate) fn name(self) -> &'static str {
        self.0
    }

    /// Returns the identifier of a section that exists once for each format.
    pub(crate) fn section(self, part: &str) -> String {
        format!("format/{}/{part}", self.0.to_lowercase())
    }
}
