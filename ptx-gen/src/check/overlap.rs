//! Overlap checks: every block of a kernel that lets others overlap must wait for the kernels
//! before it.

use super::error::{BuildError, ErrorKind};
use crate::ir::At;
use crate::isa::GridStep;

/// The waits and triggers that the walk has found.
#[derive(Default)]
pub(super) struct OverlapFindings {
    /// The number of branches and loops around the current instruction that a whole block may skip.
    pub(super) skippable: u32,
    wait: Wait,
    triggers: bool,
}

/// The guarantee that every block waits for the kernels before, on which the following kernels
/// rely.
#[derive(Default, PartialEq)]
enum Wait {
    #[default]
    None,
    /// Some block may skip the wait at this line.
    Skippable(At),
    Certain,
}

impl OverlapFindings {
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
