//! The sanitizers that observe every instruction of a launch on request: profiles, the followed
//! thread, and the checks of arithmetic and provenance.
//!
//! A launch without such a request has no [`Observers`], and its interpreter loop is compiled
//! without the calls to them.

use crate::module::address_space::Addresses;
use crate::module::code::{InstructionSpace, KernelCode};
use crate::profile::{FollowedStep, Profile};
use crate::sanitize::arithmetic::rules::{Rule, rules};
use crate::sanitize::arithmetic::value_checks::Values;
use crate::sanitize::execution_context::ExecutionContext;
use crate::sanitize::profile::counters::InstructionCounters;
use crate::sanitize::profile::followed_thread::{FollowedInstruction, FollowedThread};
use crate::sanitize::provenance::pointer_checks::Provenance;
use crate::sanitize::provenance::pointer_effects::{PointerEffect, origins};
use crate::watch::Watch;

/// The effects of the instructions of a kernel that the requested checks look at. All observers of
/// a launch share them.
#[derive(Debug, Default)]
pub(crate) struct InstructionEffects {
    /// The effects on numbers by instruction, if arithmetic is checked.
    numbers: Vec<Rule>,
    /// The effects on pointers by instruction, if provenance is checked.
    pointers: Vec<PointerEffect>,
}

impl InstructionEffects {
    /// Derives the effects that the checks of a launch need.
    pub(crate) fn new(watch: &Watch, code: &KernelCode) -> InstructionEffects {
        let mut effects = InstructionEffects::default();
        if watch.arithmetic {
            effects.numbers = rules(code);
        }
        if watch.provenance {
            effects.pointers = origins(code);
        }
        effects
    }
}

/// The observers of the blocks of one host thread.
#[derive(Debug)]
pub(crate) struct Observers {
    counters: Option<InstructionCounters>,
    followed: Option<FollowedThread>,
    values: Option<Values>,
    provenance: Option<Provenance>,
}

impl Observers {
    /// Creates the observers that a launch requests, if it requests any.
    pub(crate) fn new(watch: &Watch, code: &KernelCode) -> Option<Box<Observers>> {
        let any = watch.profile || watch.arithmetic || watch.provenance || watch.followed.is_some();
        any.then(|| {
            Box::new(Observers {
                counters: watch.profile.then(|| InstructionCounters::new(code)),
                followed: watch.followed.map(FollowedThread::new),
                values: watch.arithmetic.then(Values::default),
                provenance: watch.provenance.then(Provenance::default),
            })
        })
    }

    /// Adds the counts and the steps of another host thread.
    pub(crate) fn add(&mut self, other: Observers) {
        if let (Some(own), Some(more)) = (&mut self.counters, other.counters) {
            own.add(more);
        }
        if let (Some(own), Some(more)) = (&mut self.followed, other.followed) {
            own.steps.extend(more.steps);
        }
    }

    /// Returns the profile, if one was requested.
    pub(crate) fn profile(&self, code: &KernelCode) -> Option<Profile> {
        self.counters
            .as_ref()
            .map(|counters| counters.profile(code))
    }

    /// Returns the instructions of the followed thread.
    pub(crate) fn into_steps(self) -> Vec<FollowedStep> {
        self.followed
            .map(|followed| followed.steps)
            .unwrap_or_default()
    }

    /// Observes the instruction that a warp is about to execute in the lanes of `mask`.
    pub(crate) fn before(
        &mut self,
        context: &impl ExecutionContext,
        effects: &InstructionEffects,
        mask: u32,
    ) -> Option<FollowedInstruction> {
        if let Some(values) = &mut self.values {
            values.before(context, &effects.numbers, mask);
        }
        if let Some(provenance) = &mut self.provenance {
            provenance.before(context, &effects.pointers, mask);
        }
        if let Some(counters) = &mut self.counters {
            counters.execution(context, mask);
        }
        self.followed.as_ref()?.before(context, mask)
    }

    /// Observes the result of the instruction, which may have failed.
    pub(crate) fn after(
        &mut self,
        context: &mut impl ExecutionContext,
        effects: &InstructionEffects,
        before: Option<FollowedInstruction>,
    ) {
        if let Some(values) = &mut self.values {
            values.after(context, &effects.numbers);
        }
        if let Some(provenance) = &mut self.provenance {
            provenance.after(context, &effects.pointers);
        }
        if let (Some(followed), Some(before)) = (&mut self.followed, before) {
            followed.after(context, before);
        }
    }

    /// Forgets the instruction that was about to be executed, because other lanes run first.
    pub(crate) fn interrupted(&mut self) {
        if let Some(values) = &mut self.values {
            values.interrupted();
        }
        if let Some(provenance) = &mut self.provenance {
            provenance.interrupted();
        }
    }

    /// Observes an access of a warp to memory.
    pub(crate) fn access(
        &mut self,
        pc: u32,
        mask: u32,
        space: InstructionSpace,
        addresses: &Addresses,
        bytes: u32,
    ) {
        if let Some(counters) = &mut self.counters {
            counters.access(pc, mask, space, addresses, bytes);
        }
    }
}
