//! Which matrix instructions a device has for chunks, and so which kernels multiply: the one place that decides.

use ptx_gen::KernelDef;
use warpwright_driver::{Context, Device, Error, Host, Kernel, Queue};
use warpwright_kernels::matmul::plan::{SCRATCH, Shape};
use warpwright_kernels::matmul::{Epilogue, Matmul, MatmulArgs, MatmulPair, MatmulSync};
use warpwright_kernels::{Multiply, Overlap};

use super::weights::Rows;
use crate::signed;

/// What kernels are chosen by, besides the model and the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Chosen {
    /// Tokens, at least as many as the pass has.
    pub(crate) bucket: u32,
    /// Whether the graph is a pipeline, whose kernels overlap. It changes no result.
    pub(crate) overlap: bool,
}

/// What a device multiplies with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Cores {
    /// Multiprocessors.
    pub(crate) sms: u32,
    instructions: Instructions,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Instructions {
    /// `wgmma`, which sm_90a alone has.
    Warpgroups,
    /// `mma.sync`, from sm_80 on, with as many row blocks a warp as shared memory has room for.
    Warps { row_blocks: u32 },
}

/// The kernel of a product.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Product {
    Warpgroups(Matmul),
    Warps(MatmulSync),
}

/// The same, compiled.
pub(crate) enum ProductKernel {
    Warpgroups(Kernel<Matmul>),
    Warps(Kernel<MatmulSync>),
}

/// Tokens up to which two products are one kernel. Of 512, prompts gain 1 to 3 % by it, but registers spill; of 2,048 they
/// lose up to 3 % (an H100).
const PAIRED: u32 = 128;
/// Tokens of a block of a product of warps, of which those are taken that fit in shared memory.
const WARPS_WIDTHS: [u32; 5] = [128, 96, 64, 32, 16];
/// What a job costs besides its tokens, in tokens. Not measured: that of warpgroups.
const WARPS_FIXED: u32 = 36;

impl Cores {
    /// Those of a device; `None` if it is older than sm_80 or has little shared memory.
    pub(crate) fn of(device: &Device) -> Option<Cores> {
        let properties = device.properties();
        let instructions = match (device.compute_capability(), properties.shared_per_block) {
            ((9, 0), _) => Instructions::Warpgroups,
            ((8.., _), MatmulSync::LARGE..) => Instructions::Warps { row_blocks: 2 },
            ((8.., _), MatmulSync::SMALL..) => Instructions::Warps { row_blocks: 1 },
            _ => return None,
        };
        Some(Cores {
            sms: properties.multiprocessors,
            instructions,
        })
    }

    /// Whether attention may multiply by warpgroups, too.
    pub(crate) fn has_warpgroups(self) -> bool {
        self.instructions == Instructions::Warpgroups
    }

    /// The kernel whose rate bounds that of products.
    pub(crate) fn ceiling(self) -> Multiply {
        match self.instructions {
            Instructions::Warpgroups => Multiply::Wgmma,
            Instructions::Warps { .. } => Multiply::Mma,
        }
    }

    /// Blocks of a product. Where the kernel has a block for each job, the device hands them out.
    pub(crate) fn blocks(self, product: &Product) -> u32 {
        match product {
            Product::Warpgroups(kernel) => self.sms * kernel.form.resident(),
            Product::Warps(_) => 1 << 16,
        }
    }

    /// The product of these rows with so many tokens, in buffers with room for `capacity`, a multiple of 64.
    pub(crate) fn product(
        self,
        rows: &Rows,
        epilogue: Epilogue,
        Chosen {
            bucket: tokens,
            overlap,
        }: Chosen,
        capacity: u32,
    ) -> Product {
        match self.instructions {
            Instructions::Warpgroups => {
                let shape = Shape {
                    format: rows.format,
                    rows: rows.rows,
                    n: rows.n,
                    tokens,
                };
                let planned = Matmul::planned(&shape, epilogue, rows.order, self.sms);
                let other = Matmul::new(rows.format, epilogue, rows.order, 64);
                let has_room = |width: u32| width == 0 || capacity.is_multiple_of(width);
                let kernel = if [planned.tokens, planned.tail].into_iter().all(has_room) {
                    planned
                } else {
                    other
                };
                let overlap = if overlap {
                    self.overlap(&kernel, rows, tokens)
                } else {
                    Overlap::No
                };
                Product::Warpgroups(Matmul { overlap, ..kernel })
            }
            Instructions::Warps { row_blocks } => {
                Product::Warps(self.of_warps(rows, epilogue, [tokens, capacity], row_blocks))
            }
        }
    }

    /// The products of two matrices with few tokens as one kernel, where there is one: it saves the beginning and the end of
    /// a kernel. They divide the multiprocessors: the second matrix, of few rows, has some by its rows, but a quarter at
    /// least, as parts of its columns are short.
    pub(super) fn pair(
        self,
        [first, second]: [&Rows; 2],
        epilogue: Epilogue,
        chosen: Chosen,
        capacity: u32,
    ) -> Option<MatmulPair> {
        let tokens = chosen.bucket;
        if tokens > PAIRED {
            return None;
        }
        let of = |sms: u32, rows: &Rows| match (Cores { sms, ..self })
            .product(rows, epilogue, chosen, capacity)
        {
            Product::Warpgroups(kernel) => Some(kernel),
            Product::Warps(_) => None,
        };
        let share = (self.sms * second.rows / (first.rows + second.rows)).max(self.sms / 4);
        let values = of(share, second)?;
        let rest = self
            .sms
            .saturating_sub(values.items(second.rows, tokens))
            .max(share);
        let pair = MatmulPair::of(of(rest, first)?, values)?;
        let scratch = pair.first.scratch(first.rows, tokens);
        let others = pair.second.scratch(second.rows, tokens);
        (0..2)
            .all(|i| scratch[i] + others[i] <= SCRATCH[i])
            .then_some(pair)
    }

    /// How a product of a pipeline overlaps.
    ///
    /// A norm follows what is added to the residual stream, a block for each token. If these may start early, they share
    /// the few multiprocessors that the product does not use, and the others are idle when they may begin.
    fn overlap(self, kernel: &Matmul, rows: &Rows, tokens: u32) -> Overlap {
        let items = kernel.items(rows.rows, tokens);
        let idle = self
            .sms
            .saturating_sub(items.div_ceil(kernel.form.resident()));
        if kernel.epilogue == Epilogue::Add && idle < tokens {
            Overlap::Late
        } else {
            Overlap::Early
        }
    }

    fn of_warps(
        self,
        rows: &Rows,
        epilogue: Epilogue,
        [tokens, capacity]: [u32; 2],
        row_blocks: u32,
    ) -> MatmulSync {
        let Rows { format, order, .. } = *rows;
        let of = |width| MatmulSync {
            format,
            epilogue,
            rows: order,
            tokens: width,
            row_blocks,
        };
        let rounds = |kernel: &MatmulSync| kernel.jobs(rows.rows, tokens).div_ceil(self.sms);
        let cost = |kernel: &MatmulSync| rounds(kernel) * (kernel.tokens + WARPS_FIXED);
        let widths = WARPS_WIDTHS
            .into_iter()
            .filter(|&width| capacity.is_multiple_of(width));
        widths
            .map(of)
            .filter(MatmulSync::fits)
            .min_by_key(cost)
            .expect("64 tokens fit in every format")
    }
}

impl Product {
    pub(crate) fn load(self, context: &Context) -> Result<ProductKernel, Error> {
        Ok(match self {
            Product::Warpgroups(kernel) => ProductKernel::Warpgroups(load(context, kernel)?),
            Product::Warps(kernel) => ProductKernel::Warps(load(context, kernel)?),
        })
    }
}

impl ProductKernel {
    pub(crate) fn launch(
        &self,
        queue: &mut impl Queue,
        args: MatmulArgs<Host<'_>>,
    ) -> Result<(), Error> {
        match self {
            ProductKernel::Warpgroups(kernel) => queue.launch(kernel, args),
            ProductKernel::Warps(kernel) => queue.launch(kernel, args),
        }
    }
}

impl ProductKernel {
    pub(crate) fn name(&self) -> String {
        match self {
            ProductKernel::Warpgroups(kernel) => kernel.def().name(),
            ProductKernel::Warps(kernel) => kernel.def().name(),
        }
    }
}

/// Loads a kernel that prefers shared memory, as the products do: a multiprocessor changes the split between kernels
/// only when it is idle.
pub(super) fn load<K: KernelDef>(context: &Context, kernel: K) -> Result<Kernel<K>, Error> {
    let kernel = signed::load(context, kernel)?;
    kernel.function().prefer_shared()?;
    Ok(kernel)
}
