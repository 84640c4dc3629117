//! Errors of a template.

/// The reason why a template cannot be compiled or rendered, and its line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Error {
    line: Option<u32>,
    kind: Kind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    Failed(String),
    /// The template called `raise_exception`.
    Raised(String),
}

impl Error {
    pub(super) fn failed(problem: impl Into<String>) -> Error {
        Error {
            line: None,
            kind: Kind::Failed(problem.into()),
        }
    }

    pub(super) fn raised(message: impl Into<String>) -> Error {
        Error {
            line: None,
            kind: Kind::Raised(message.into()),
        }
    }

    pub(super) fn syntax(line: u32, problem: impl Into<String>) -> Error {
        Error {
            line: Some(line),
            kind: Kind::Failed(format!("syntax error: {}", problem.into())),
        }
    }

    /// Returns the error for a use of an undefined value.
    pub(super) fn undefined(reason: &str) -> Error {
        Error::failed(format!("undefined value: {reason}"))
    }

    /// Adds the line, unless an inner part of the template has set it.
    pub(super) fn at(self, line: u32) -> Error {
        Error {
            line: self.line.or(Some(line)),
            ..self
        }
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let line = self
            .line
            .map_or(String::new(), |line| format!(" in line {line}"));
        match &self.kind {
            Kind::Failed(problem) => write!(f, "fails{line}: {problem}"),
            Kind::Raised(message) => write!(f, "refuses the conversation{line}: {message}"),
        }
    }
}

impl std::error::Error for Error {}
