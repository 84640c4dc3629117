//! What a row of the table is, and how one is written.

use crate::target::Version;

pub(super) use super::effect::*;
pub(super) use crate::level::Level;
pub(super) use crate::ty::Kind::{self, *};

/// One row: an instruction form. It equals itself alone: there is no second row like it.
#[derive(Debug)]
pub struct Op {
    /// The row's name in Rust: `FMA_RN`.
    pub id: &'static str,
    /// Mnemonic with placeholders: `fma.rn.$t`.
    pub template: &'static str,
    /// What `$t`, `$m` and `$b` may stand for; empty where the template has none.
    pub types: &'static [Kind],
    /// What `$s` may stand for.
    pub from: &'static [Kind],
    /// What is written and read, in order.
    pub form: Form,
    /// Least compute capability, times ten.
    pub sm: u32,
    /// Whether the target must be one of an architecture's own: the `a` of `sm_90a`.
    pub specific: bool,
    /// Least PTX version.
    pub version: Version,
    /// The threads that must reach it together.
    pub together: Level,
    /// What it does besides computing a result from its operands.
    pub effect: Effect,
    /// How exact the result is.
    pub accuracy: Accuracy,
    /// What it does, in one line.
    pub doc: &'static str,
}

impl PartialEq for Op {
    fn eq(&self, other: &Op) -> bool {
        std::ptr::eq(self, other)
    }
}
impl Eq for Op {}

/// How exact a result is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Accuracy {
    /// Exact, or correctly rounded.
    Exact,
    /// Within this many units in the last place.
    Ulp(u32),
    /// As this text says.
    Bound(&'static str),
}

/// The operands of a form.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Form {
    /// Registers written.
    pub dst: &'static [Slot],
    /// Operands read.
    pub src: &'static [Slot],
}

/// One operand of a form.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Slot {
    /// A value of the operation's type.
    T,
    /// A value of the conversion's source type.
    S,
    /// A value of this type, whatever the operation's.
    Is(Kind),
    /// A value of the operation's width, twice over: the 64-bit result of a 32-bit product.
    Wide,
    /// A literal in this range.
    Lit(u32, u32),
    /// A value of the operation's type, a special register or the address of a shared array.
    Any,
    /// A vector of this many values.
    Vec(u32),
    /// A vector of this many registers of this type, whatever the operation's.
    Regs(Kind, u32),
    /// Two binary16 values, as a vector.
    Halves,
    /// An address in global memory.
    Global,
    /// An address in shared memory.
    Shared,
    /// The address of an mbarrier in shared memory: 8 bytes, set up by `mbarrier.init`.
    Barrier,
    /// The parity of an mbarrier's phase: 0 or 1.
    Parity,
    /// A number of bytes, a multiple of 16.
    Bytes,
    /// A number of threads, a multiple of 32.
    Threads,
    /// A cache policy, as `createpolicy` makes them.
    Policy,
    /// Sums of a product of a warpgroup, which are read as well: half as many registers of this type as there are
    /// columns, which are a multiple of 8 up to 256.
    Accumulators(Kind),
    /// A matrix in shared memory, described in 64 bits.
    Descriptor,
    /// A place in a tensor: the address of its tensor map, and one to five coordinates, the innermost first.
    Tensor,
    /// The generic address of a tensor map.
    TensorMap,
    /// Blocks of the cluster, one bit each: 16 bits.
    Blocks,
    /// An address in shared memory of a block of the cluster, as `mapa` makes them.
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

/// A row that states what it does besides computing a result.
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

/// A row whose result follows from its operands, and that does nothing else.
///
/// A row with an address among its operands does not compile with it: what it does there must be stated.
pub(super) const fn pure(
    template: &'static str,
    types: &'static [Kind],
    form: Form,
    doc: &'static str,
) -> Op {
    assert!(
        !has_address(form.src),
        "an instruction with an address states its effect: use `op`"
    );
    assert!(
        !form.dst.is_empty(),
        "an instruction without a result states its effect: use `op`"
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

    /// How far its results are the same.
    pub fn uniformity(&self) -> Uniformity {
        self.effect.uniformity()
    }

    /// Every pair of `$t` and `$s` that the row allows.
    pub fn instances(&'static self) -> impl Iterator<Item = (Kind, Option<Kind>)> {
        let types = if self.types.is_empty() {
            &[U32][..]
        } else {
            self.types
        };
        types.iter().flat_map(|&t| {
            let from: std::vec::Vec<Option<Kind>> = match self.from {
                [] => vec![None],
                // A conversion is from another type; a right matrix may be of the left one's.
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

/// A chapter of the manual and its rows.
pub struct Chapter {
    /// The manual's title.
    pub title: &'static str,
    /// The rows, in the manual's order.
    pub rows: &'static [&'static Op],
}

macro_rules! table {
    ($(#[$m:meta])* $chapter:ident, $title:literal; $($name:ident = $row:expr;)*) => {
        $(
            #[doc = stringify!($row)]
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
    #[should_panic(expected = "states its effect")]
    fn a_load_is_no_pure_row() {
        pure(
            "ld.global.nc.v8.$m",
            FLOAT,
            form(&[Slot::Vec(8)], &[Global]),
            "load eight elements",
        );
    }

    #[test]
    #[should_panic(expected = "states its effect")]
    fn a_row_without_results_is_no_pure_row() {
        pure("fence.sc.gpu", &[], NULLARY, "order all memory accesses");
    }
}
