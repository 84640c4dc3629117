//! The fundamental types of PTX (PTX ISA, "Fundamental Types").

use std::fmt;

/// The interpretation of the bits of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum TypeKind {
    /// `.bN`, untyped bits.
    Bits,
    /// `.uN`.
    Unsigned,
    /// `.sN`.
    Signed,
    /// `.fN`, and packed pairs of them.
    Float,
    /// `.bf16`, `.bf16x2` and `.tf32`, which bit registers contain.
    Alternate,
    /// `.pred`.
    Predicate,
}

macro_rules! types {
    ($($variant:ident $name:literal $kind:ident $bits:literal,)*) => {
        /// A type suffix.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub(crate) enum Type { $($variant),* }

        impl Type {
            /// Returns the type that a suffix such as `.u32` names.
            pub(crate) fn parse(suffix: &str) -> Option<Type> {
                match suffix { $($name => Some(Type::$variant),)* _ => None }
            }

            /// Returns the suffix with its dot.
            pub(crate) fn name(self) -> &'static str {
                match self { $(Type::$variant => $name),* }
            }

            /// Returns the interpretation of the bits.
            pub(crate) fn kind(self) -> TypeKind {
                match self { $(Type::$variant => TypeKind::$kind),* }
            }

            /// Returns the width in bits, which is 1 for predicates.
            pub(crate) fn bits(self) -> u32 {
                match self { $(Type::$variant => $bits),* }
            }
        }
    };
}

types! {
    B8 ".b8" Bits 8,
    B16 ".b16" Bits 16,
    B32 ".b32" Bits 32,
    B64 ".b64" Bits 64,
    B128 ".b128" Bits 128,
    U16x2 ".u16x2" Alternate 32,
    S16x2 ".s16x2" Alternate 32,
    E4m3x2 ".e4m3x2" Alternate 16,
    E5m2x2 ".e5m2x2" Alternate 16,
    E2m1x2 ".e2m1x2" Alternate 8,
    E2m3x2 ".e2m3x2" Alternate 16,
    E3m2x2 ".e3m2x2" Alternate 16,
    Ue8m0x2 ".ue8m0x2" Alternate 16,
    U8 ".u8" Unsigned 8,
    U16 ".u16" Unsigned 16,
    U32 ".u32" Unsigned 32,
    U64 ".u64" Unsigned 64,
    S8 ".s8" Signed 8,
    S16 ".s16" Signed 16,
    S32 ".s32" Signed 32,
    S64 ".s64" Signed 64,
    F16 ".f16" Float 16,
    F16x2 ".f16x2" Float 32,
    F32 ".f32" Float 32,
    F32x2 ".f32x2" Alternate 64,
    F64 ".f64" Float 64,
    Bf16 ".bf16" Alternate 16,
    Bf16x2 ".bf16x2" Alternate 32,
    Tf32 ".tf32" Alternate 32,
    Pred ".pred" Predicate 1,
}

impl Type {
    /// Returns the size in bytes.
    pub(crate) fn bytes(self) -> u32 {
        self.bits().div_ceil(8)
    }

    /// Returns true if an instruction of this type accepts registers of type `register`.
    ///
    /// The sizes must be equal, and the kinds too unless one of them is untyped. Signedness does
    /// not matter (PTX ISA, "Operand Type Checking").
    pub(crate) fn accepts(self, register: Type) -> bool {
        let int = |k| matches!(k, TypeKind::Unsigned | TypeKind::Signed);
        let want = self.kind();
        let have = register.kind();
        self.bits() == register.bits()
            && match want {
                TypeKind::Predicate => have == TypeKind::Predicate,
                TypeKind::Alternate => have == TypeKind::Bits || self == register,
                TypeKind::Bits => have != TypeKind::Predicate,
                TypeKind::Float => have == TypeKind::Bits || self == register,
                _ => have == TypeKind::Bits || int(have),
            }
    }

    /// Returns true if an instruction such as `ld`, `st` or `cvt` accepts a register of type
    /// `register`.
    ///
    /// The rules are those of [`Type::accepts`], but the register may be wider (PTX ISA, "Operand
    /// Size Exceeding Instruction-Type Size").
    pub(crate) fn accepts_wider(self, register: Type) -> bool {
        let int = |k| matches!(k, TypeKind::Unsigned | TypeKind::Signed | TypeKind::Bits);
        let widens = match self.kind() {
            TypeKind::Bits => register.kind() != TypeKind::Predicate,
            TypeKind::Unsigned | TypeKind::Signed => int(register.kind()),
            TypeKind::Float | TypeKind::Alternate => register.kind() == TypeKind::Bits,
            TypeKind::Predicate => false,
        };
        self.accepts(register) || widens && register.bits() > self.bits()
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
