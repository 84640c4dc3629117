//! Targets: the chips that a kernel can be printed for, and the least PTX version each needs.

use std::fmt;

/// A PTX ISA version: `Version(7, 8)` is `.version 7.8`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Version(pub u8, pub u8);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// A `.target`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Target {
    /// `sm_90a`
    pub name: &'static str,
    /// Ten times the compute capability: 90.
    pub sm: u32,
    /// Whether architecture-specific rows (the `a` of `sm_90a`) are allowed; such PTX runs on this chip alone.
    pub specific: bool,
    /// The first PTX version that knows it (measured with ptxas, equal in all its releases).
    pub version: Version,
}

const fn target(name: &'static str, sm: u32, specific: bool, version: Version) -> Target {
    Target {
        name,
        sm,
        specific,
        version,
    }
}

impl Target {
    /// Every target, oldest first.
    pub const ALL: [Target; 8] = [
        target("sm_75", 75, false, Version(6, 3)),
        target("sm_80", 80, false, Version(7, 0)),
        target("sm_86", 86, false, Version(7, 1)),
        target("sm_89", 89, false, Version(7, 8)),
        target("sm_90", 90, false, Version(7, 8)),
        target("sm_90a", 90, true, Version(8, 0)),
        target("sm_100", 100, false, Version(8, 6)),
        target("sm_120", 120, false, Version(8, 7)),
    ];

    /// The target of this name.
    pub fn named(name: &str) -> Option<Target> {
        Target::ALL.into_iter().find(|t| t.name == name)
    }

    /// The newest target whose PTX runs on a device of this compute capability; `None` below 7.5.
    ///
    /// PTX for `sm_XY` runs on every device of at least that capability; an `a` target only on its own chip.
    pub fn for_device(major: u32, minor: u32) -> Option<Target> {
        let sm = 10 * major + minor;
        Target::ALL
            .into_iter()
            .rev()
            .find(|t| if t.specific { t.sm == sm } else { t.sm <= sm })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
