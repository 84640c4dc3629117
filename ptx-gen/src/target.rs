//! Targets: the architectures for which a kernel can be printed, and their minimum PTX versions.

use std::fmt;

/// A PTX ISA version. `Version(7, 8)` is `.version 7.8`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Version(pub u8, pub u8);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// A `.target` of PTX.
///
/// # Example
/// ```
/// use ptx_gen::Target;
///
/// // PTX for an architecture-specific target runs only on that architecture.
/// assert_eq!(Target::for_device(9, 0).unwrap().name, "sm_90a");
/// assert_eq!(Target::for_device(8, 7).unwrap().name, "sm_86");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct Target {
    /// The name, for example `sm_90a`.
    pub name: &'static str,
    /// The compute capability, times ten. It is 90 for `sm_90a`.
    pub sm: u32,
    /// Whether the target is architecture-specific, like the `a` in `sm_90a`.
    ///
    /// Only such targets allow architecture-specific instructions, and their PTX runs only on this
    /// architecture.
    pub specific: bool,
    /// The first PTX version that supports the target. It was measured with `ptxas` and is the same
    /// in all its releases.
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
    /// All targets, the oldest first.
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

    /// Returns the target with this name, or `None` if it is unknown.
    pub fn named(name: &str) -> Option<Target> {
        Target::ALL.into_iter().find(|t| t.name == name)
    }

    /// Returns the newest target whose PTX runs on a device of this compute capability, or `None`
    /// below 7.5.
    ///
    /// PTX for `sm_XY` runs on every device of at least this capability. PTX for an `a` target runs
    /// only on its own architecture.
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
