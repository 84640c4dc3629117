//! The number formats of weights that a model may have.
//!
//! A format is a row of ggml's table of types, [`TENSOR_TYPES`], so names, numbers and block sizes
//! are declared there. The programs that read a format belong to the kernels, which list the same
//! formats under the same type numbers.

use crate::format::tensor_type::{TENSOR_TYPES, TensorType};

/// Declares the formats: the name and the type number of each.
macro_rules! weight_formats {
    ($($(#[$doc:meta])* $name:ident = $ggml_type:literal;)*) => {
        /// The number format of a weight.
        #[allow(non_camel_case_types)] // ggml's names
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum WeightFormat {
            $($(#[$doc])* $name,)*
        }

        impl WeightFormat {
            /// Every format.
            pub const ALL: [WeightFormat; [$($ggml_type),*].len()] = [$(WeightFormat::$name),*];

            /// Returns the type number in a GGUF file.
            pub const fn ggml_type(self) -> u32 {
                match self {
                    $(WeightFormat::$name => $ggml_type,)*
                }
            }
        }
    };
}

weight_formats! {
    /// IEEE binary32.
    F32 = 0;
    /// IEEE binary16.
    F16 = 1;
    /// bfloat16.
    BF16 = 30;
    /// 32 four-bit weights under one scale.
    Q4_0 = 2;
    /// 32 four-bit weights with a scale and a minimum.
    Q4_1 = 3;
    /// 32 five-bit weights under one scale.
    Q5_0 = 6;
    /// 32 five-bit weights with a scale and a minimum.
    Q5_1 = 7;
    /// 32 signed bytes under one scale.
    Q8_0 = 8;
    /// 256 two-bit weights: 16 groups of 16, each with a four-bit scale and minimum.
    Q2_K = 10;
    /// 256 three-bit weights: 16 groups of 16, each with a six-bit scale.
    Q3_K = 11;
    /// 256 four-bit weights: 8 groups of 32, each with a six-bit scale and minimum.
    Q4_K = 12;
    /// 256 five-bit weights: 8 groups of 32, each with a six-bit scale and minimum.
    Q5_K = 13;
    /// 256 six-bit weights: 16 groups of 16, each with an eight-bit scale.
    Q6_K = 14;
    /// 32 indices into a table of 16 bytes, under one scale.
    IQ4_NL = 20;
    /// 256 indices into the same table: 8 groups of 32, each with a six-bit scale.
    IQ4_XS = 23;
    /// 32 four-bit floats (E2M1) under one power of two (E8M0), as the OCP microscaling
    /// specification defines MXFP4.
    MXFP4 = 39;
}

impl WeightFormat {
    /// Returns the row of ggml's table that describes the format.
    fn tensor_type(self) -> &'static TensorType {
        TENSOR_TYPES
            .iter()
            .find(|kind| kind.id == self.ggml_type())
            .expect("each format is a row of the table, as a test checks")
    }

    /// Returns ggml's name, for example `Q4_K`.
    pub fn name(self) -> &'static str {
        self.tensor_type().name
    }

    /// Returns the number of weights of a block. The length of a row is a multiple of it.
    pub fn block_len(self) -> u32 {
        self.tensor_type().block_len as u32
    }

    /// Returns the bytes of a block.
    pub fn block_bytes(self) -> u32 {
        self.tensor_type().block_bytes as u32
    }

    /// Returns the bytes of a row of `n` weights, a multiple of
    /// [`block_len`](WeightFormat::block_len).
    pub fn row_bytes(self, n: usize) -> usize {
        n / self.block_len() as usize * self.block_bytes() as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_format_is_a_row_of_the_table_under_its_own_name() {
        for format in WeightFormat::ALL {
            assert_eq!(format.name(), format!("{format:?}"));
        }
    }
}
