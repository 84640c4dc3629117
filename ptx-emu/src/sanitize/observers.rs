//! The sanitizers that observe every instruction of a launch on request: profiles, the followed
//! thread, and the checks of arithmetic and provenance.
//!
//! A launch without such a request has no [`Observers`], and its interpreter loop is compiled
//! without the calls to them.

use std::sync::Arc;

use crate::module::code::KernelCode;
use crate::profile::{FollowedStep, Profile};
use crate::sanitize::arithmetic::rules::{Rule, rules};
use crate::sanitize::arithmetic::value_checks::Values;
use crate::sanitize::execution_context::ExecutionContext;
use crate::sanitize::observer::{ObservedAccess, Observer};
use crate::sanitize::profile::counters::InstructionCounters;
use crate::sanitize::profile::followed_thread::FollowedThread;
use crate::sanitize::provenance::pointer_checks::Provenance;
use crate::sanitize::provenance::pointer_effects::{PointerEffect, origins};
use crate::watch::Watch;

/// The effects of the instructions of a kernel that the requested checks look at. All observers of
/// a launch share them.
#[derive(Debug, Default)]
pub(crate) struct InstructionEffects {
    /// The effects on numbers by instruction, if arithmetic is checked.
    numbers: Arc<[Rule]>,
    /// The effects on pointers by instruction, if provenance is checked.
    pointers: Arc<[PointerEffect]>,
}

impl InstructionEffects {
    /// Derives the effects that the checks of a launch need.
    pub(crate) fn new(watch: &Watch, code: &KernelCode) -> InstructionEffects {
        let mut effects = InstructionEffects::default();
        if watch.arithmetic {
            effects.numbers = rules(code).into();
        }
        if watch.provenance {
            effects.pointers = origins(code).into();
        }
        effects
    }
}

/// The observers of the blocks of one host thread.
#[derive(Debug)]
pub(crate) struct Observers {
    values: Option<Values>,
    provenance: Option<Provenance>,
    counters: Option<InstructionCounters>,
    followed: Option<FollowedThread>,
}

impl Observers {
    /// Creates the observers that a launch requests, if it requests any.
    pub(crate) fn new(
        watch: &Watch,
        code: &KernelCode,
        effects: &InstructionEffects,
    ) -> Option<Box<Observers>> {
        let any = watch.profile || watch.arithmetic || watch.provenance || watch.followed.is_some();
        any.then(|| {
            Box::new(Observers {
                values: watch
                    .arithmetic
                    .then(|| Values::new(effects.numbers.clone())),
                provenance: watch
                    .provenance
                    .then(|| Provenance::new(effects.pointers.clone())),
                counters: watch.profile.then(|| InstructionCounters::new(code)),
                followed: watch.followed.map(FollowedThread::new),
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
}

/// An observer that was not requested observes nothing.
impl<O: Observer> Observer for Option<O> {
    fn before(&mut self, context: &impl ExecutionContext, mask: u32) {
        if let Some(observer) = self {
            observer.before(context, mask);
        }
    }

    fn after(&mut self, context: &mut impl ExecutionContext) {
        if let Some(observer) = self {
            observer.after(context);
        }
    }

    fn interrupted(&mut self) {
        if let Some(observer) = self {
            observer.interrupted();
        }
    }

    fn access(&mut self, access: &ObservedAccess<'_>) {
        if let Some(observer) = self {
            observer.access(access);
        }
    }
}

impl Observer for Observers {
    fn before(&mut self, context: &impl ExecutionContext, mask: u32) {
        self.values.before(context, mask);
        self.provenance.before(context, mask);
        self.counters.before(context, mask);
        self.followed.before(context, mask);
    }

    fn after(&mut self, context: &mut impl ExecutionContext) {
        self.values.after(context);
        self.provenance.after(context);
        self.counters.after(context);
        self.followed.after(context);
    }

    fn interrupted(&mut self) {
        self.values.interrupted();
        self.provenance.interrupted();
        self.counters.interrupted();
        self.followed.interrupted();
    }

    fn access(&mut self, access: &ObservedAccess<'_>) {
        self.values.access(access);
        self.provenance.access(access);
        self.counters.access(access);
        self.followed.access(access);
    }
}
