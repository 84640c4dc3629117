//! Overlap: every block of a kernel that overlaps others waits for the kernels before.

use super::error::{BuildError, ErrorKind};
use crate::ir::At;
use crate::isa::GridStep;

/// What a walk knows of waits so far.
#[derive(Default)]
pub(super) struct Overlap {
    /// Branches and loops around this place that a whole block may skip.
    pub(super) skippable: u32,
    wait: Wait,
    triggers: bool,
}

/// Whether every block waits for the kernels before: those after it rely on that.
#[derive(Default, PartialEq)]
enum Wait {
    #[default]
    None,
    /// Some block may not: the place.
    Skippable(At),
    Certain,
}

impl Overlap {
    pub(super) fn step(&mut self, step: GridStep, at: At) {
        match step {
            GridStep::Trigger => self.triggers = true,
            GridStep::Wait if self.skippable == 0 => self.wait = Wait::Certain,
            GridStep::Wait if self.wait != Wait::Certain => self.wait = Wait::Skippable(at),
            GridStep::Wait => {}
        }
    }

    pub(super) fn errors(self, kernel: &str) -> Vec<BuildError> {
        match self.wait {
            Wait::Skippable(at) => vec![BuildError {
                at: Some(at),
                kind: ErrorKind::MayNotWait,
            }],
            Wait::None if self.triggers => {
                vec![BuildError {
                    at: None,
                    kind: ErrorKind::NeverWaits(kernel.into()),
                }]
            }
            Wait::None | Wait::Certain => vec![],
        }
    }
}
