//! The type of a row of the instruction table, and the functions that rows are written with.

use crate::target::Version;

pub(super) use super::effect::*;
pub(super) use crate::level::Level;
pub(super) use crate::ty::Kind::{self, *};

/// A row of the instruction table: one form of an instruction.
///
/// Two rows are equal only if they are the same row.
#[derive(Debug)]
pub struct Op {
    /// The name of the row in Rust, for example `FMA_RN`.
    pub id: &'static str,
    /// The mnemonic with placeholders, for example `fma.rn.$t`.
    pub template: &'static str,
    /// The types that `$t`, `$m` and `$b` can represent. It is empty for a template without them.
    pub types: &'static [Kind],
    /// The types that `$s` can represent.
    pub from: &'static [Kind],
    /// The operands that are written and read, in order.
    pub form: Form,
    /// The minimum compute capability, times ten.
    pub sm: u32,
    /// Whether the target must be architecture-specific, like the `a` in `sm_90a`.
    pub specific: bool,
    /// The minimum PTX version.
    pub version: Version,
    /// The group of threads that must execute it together.
    pub together: Level,
    /// The effect besides computing a result from the operands.
    pub effect: Effect,
    /// The accuracy of the result.
    pub accuracy: Accuracy,
    /// The meaning in one line.
    pub doc: &'static str,
}

impl PartialEq for Op {
    fn eq(&self, other: &Op) -> bool {
        std::ptr::eq(self, other)
    }
}
impl Eq for Op {}

/// The accuracy of a result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Accuracy {
    /// Exact or correctly rounded.
    Exact,
    /// The maximum error in units in the last place.
    Ulp(u32),
    /// A bound that the text describes.
    Bound(&'static str),
}

/// The operands of an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Form {
    /// The registers that it writes.
    pub dst: &'static [Slot],
    /// The operands that it reads.
    pub src: &'static [Slot],
}

/// The kind of one operand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Slot {
    /// A value of the operation's type.
    T,
    /// A value of the source type of a conversion.
    S,
    /// A value of this type, independent of the operation's type.
    Is(Kind),
    /// A value of twice the operation's width, such as the 64-bit result of a 32-bit
    /// multiplication.
    Wide,
    /// A literal in this inclusive range.
    Lit(u32, u32),
    /// A value of the operation's type, a special register, or the address of a shared array.
    Any,
    /// A vector of this many values.
    Vec(u32),
    /// A vector of this many registers of this type, independent of the operation's type.
    Regs(Kind, u32),
    /// A vector of two binary16 values.
    Halves,
    /// An address in global memory.
    Global,
    /// An address in shared memory.
    Shared,
    /// The address of an mbarrier in shared memory: 8 bytes that `mbarrier.init` has initialized.
    Barrier,
    /// The parity of a phase of an mbarrier: 0 or 1.
    Parity,
    /// A number of bytes that is a multiple of 16.
    Bytes,
    /// A number of threads that is a multiple of 32.
    Threads,
    /// A cache policy from `createpolicy`.
    Policy,
    /// The accumulators of a matmul of a warpgroup, which are also read.
    ///
    /// There are half as many registers of this type as columns, and the columns are a multiple of
    /// 8 up to 256.
    Accumulators(Kind),
    /// The 64-bit descriptor of a matrix in shared memory.
    Descriptor,
    /// A position in a tensor: the address of its map and one to five coordinates, the innermost
    /// first.
    Tensor,
    /// The generic address of a tensor map.
    TensorMap,
    /// A 16-bit mask with one bit for each block of the cluster.
    Blocks,
    /// An address in shared memory of a block of the cluster, as `mapa` returns it.
    Cluster,
    /// The name of a kernel parameter.
    ParamName,
    /// A kernel parameter.
    Param,
}

pub(super) use Slot::{
    Accumulators, Any, Barrier, Blocks, Bytes, Cluster, Descriptor, Global, Halves, Is, Lit, Param,
    ParamName, Parity, Policy, Regs, S, Shared, T, Tensor, TensorMap, Threads, Vec, Wide,
};

pub(super) const fn form(dst: &'static [Slot], src: &'static [Slot]) -> Form {
    Form { dst, src }
}

pub(super) const NULLARY: Form = form(&[], &[]);
pub(super) const UNARY: Form = form(&[T], &[T]);
pub(super) const BINARY: Form = form(&[T], &[T, T]);
pub(super) const TERNARY: Form = form(&[T], &[T, T, T]);
pub(super) const CONVERT: Form = form(&[T], &[S]);
pub(super) const COMPARE: Form = form(&[Is(Pred)], &[T, T]);

pub(super) const INTS: &[Kind] = &[U32, S32, U64, S64];
pub(super) const INT32: &[Kind] = &[U32, S32];
pub(super) const WORDS: &[Kind] = &[U32, S32, F16x2];
pub(super) const FLOAT: &[Kind] = &[F32];

/// Returns a row with an explicit effect.
pub(super) const fn op(
    template: &'static str,
    types: &'static [Kind],
    form: Form,
    effect: Effect,
    doc: &'static str,
) -> Op {
    Op {
        id: "",
        template,
        types,
        from: &[],
        form,
        sm: 50,
        specific: false,
        version: Version(6, 0),
        together: Level::Lane,
        effect,
        accuracy: Accuracy::Exact,
        doc,
    }
}

/// Returns a row without an effect besides its result, which depends only on the operands.
///
/// A row with an address operand or without a result does not compile with this function, because
/// its effect must be stated.
pub(super) const fn pure(
    template: &'static str,
    types: &'static [Kind],
    form: Form,
    doc: &'static str,
) -> Op {
    assert!(
        !has_address(form.src),
        "an instruction with an address must state its effect: use `op`"
    );
    assert!(
        !form.dst.is_empty(),
        "an instruction without a result must state its effect: use `op`"
    );
    op(template, types, form, Effect::Pure, doc)
}

const fn has_address(src: &[Slot]) -> bool {
    let mut i = 0;
    while i < src.len() {
        if matches!(
            src[i],
            Global | Shared | Barrier | Param | Tensor | TensorMap | Cluster
        ) {
            return true;
        }
        i += 1;
    }
    false
}

impl Op {
    pub(super) const fn named(mut self, id: &'static str) -> Op {
        self.id = id;
        self
    }
    pub(super) const fn from(mut self, from: &'static [Kind]) -> Op {
        self.from = from;
        self
    }
    pub(super) const fn needs(mut self, sm: u32, major: u8, minor: u8) -> Op {
        self.sm = sm;
        self.version = Version(major, minor);
        self
    }
    pub(super) const fn specific(mut self) -> Op {
        self.specific = true;
        self
    }
    pub(super) const fn together(mut self, level: Level) -> Op {
        self.together = level;
        self
    }
    pub(super) const fn ulp(mut self, n: u32) -> Op {
        self.accuracy = Accuracy::Ulp(n);
        self
    }
    pub(super) const fn bound(mut self, text: &'static str) -> Op {
        self.accuracy = Accuracy::Bound(text);
        self
    }

    /// Returns the uniformity of the results.
    pub fn uniformity(&self) -> Uniformity {
        self.effect.uniformity()
    }

    /// Returns all pairs of `$t` and `$s` that the row allows.
    pub fn instances(&'static self) -> impl Iterator<Item = (Kind, Option<Kind>)> {
        let types = if self.types.is_empty() {
            &[U32][..]
        } else {
            self.types
        };
        types.iter().flat_map(|&t| {
            let from: std::vec::Vec<Option<Kind>> = match self.from {
                [] => vec![None],
                // A conversion needs two different types, but a right matrix may have the type of
                // the left one.
                from if self.form.src.contains(&S) => from
                    .iter()
                    .map(|&s| Some(s))
                    .filter(|s| *s != Some(t))
                    .collect(),
                from => from.iter().map(|&s| Some(s)).collect(),
            };
            from.into_iter().map(move |s| (t, s))
        })
    }
}

/// A chapter of the manual with its rows.
pub struct Chapter {
    /// The title in the manual.
    pub title: &'static str,
    /// The rows in the order of the manual.
    pub rows: &'static [&'static Op],
}

macro_rules! table {
    ($(#[$m:meta])* $chapter:ident, $title:literal; $($name:ident = $row:expr;)*) => {
        $(
            #[doc = concat!("The row of this declaration:\n\n```text\n", stringify!($row), "\n```")]
            pub static $name: Op = $row.named(stringify!($name));
        )*
        $(#[$m])*
        pub static $chapter: Chapter = Chapter { title: $title, rows: &[$(&$name),*] };
    };
}
pub(super) use table;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "must state its effect")]
    fn a_load_is_no_pure_row() {
        pure(
            "ld.global.nc.v8.$m",
            FLOAT,
            form(&[Slot::Vec(8)], &[Global]),
            "load eight elements",
        );
    }

    #[test]
    #[should_panic(expected = "must state its effect")]
    fn a_row_without_results_is_no_pure_row() {
        pure("fence.sc.gpu", &[], NULLARY, "order all memory accesses");
    }
}
