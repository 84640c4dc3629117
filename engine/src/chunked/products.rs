//! The selection of matmul kernels by the matrix instructions of a device. It happens in this
//! module only.

use ptx_gen::KernelDef;
use warpwright_driver::device::Device;
use warpwright_driver::launch::{Host, Kernel};
use warpwright_driver::stream::Queue;
use warpwright_driver::{Context, Error};
use warpwright_kernels::matmul::experts::{MatmulExperts, MatmulSyncExperts, group_width};
use warpwright_kernels::matmul::plan::{SCRATCH, Shape};
use warpwright_kernels::matmul::{Epilogue, Matmul, MatmulPair, MatmulSync};
use warpwright_kernels::{Multiply, Overlap};
use warpwright_model::layer::Experts;

use super::weights::MatrixRows;
use crate::signed;

/// The properties of a pass by which its kernels are selected, in addition to the model and the
/// device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PassShape {
    /// The bucket: a number of tokens that is at least the number in the pass.
    pub(crate) bucket: u32,
    pub(crate) splits: ColumnSplits,
    /// Whether the graph is a pipeline whose kernels overlap. It does not change the results.
    pub(crate) overlap: bool,
}

/// The rule by which the columns of a matrix are split among blocks. Among the selected kernels,
/// only the number of splits changes the bits of a token's results.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ColumnSplits {
    /// The fastest split for the bucket of the pass.
    Fastest,
    /// No split.
    Whole,
    /// The fastest split for this bucket, which is not smaller than that of the pass.
    OfBucket(u32),
}

/// The matrix instructions of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TensorCores {
    /// The number of multiprocessors.
    pub(crate) sms: u32,
    instructions: Instructions,
}

/// A kind of matrix instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Instructions {
    /// `wgmma`, which only sm_90a has.
    Warpgroups,
    /// `mma.sync`, from sm_80 on. The number of row blocks per warp depends on the size of shared
    /// memory.
    Warps { row_blocks: u32 },
}

/// A matmul kernel for one of two kinds of matrix instructions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum TensorKernel<W, S> {
    /// A kernel with `wgmma`.
    Warpgroups(W),
    /// A kernel with `mma.sync`.
    Warps(S),
}

/// The kernel of a matmul.
pub(crate) type ChunkGemm = TensorKernel<Matmul, MatmulSync>;
/// A compiled matmul kernel.
pub(crate) type LoadedGemm = LoadedKernel<Matmul, MatmulSync>;
/// The kernel of a matmul of rows that are sorted by expert.
pub(crate) type ExpertGemm = TensorKernel<MatmulExperts, MatmulSyncExperts>;
/// A compiled matmul kernel of rows that are sorted by expert.
pub(crate) type LoadedExpertGemm = LoadedKernel<MatmulExperts, MatmulSyncExperts>;
type LoadedKernel<W, S> = TensorKernel<Kernel<W>, Kernel<S>>;

/// The maximum number of tokens for which two matmuls are one kernel. On an H100, prompts of 512
/// tokens gain 1 to 3 % but registers spill, and prompts of 2,048 tokens lose up to 3 %.
const PAIRED: u32 = 128;
/// The numbers of tokens per block of a `mma.sync` kernel. Only those that fit into shared memory
/// are considered.
const WARPS_WIDTHS: [u32; 5] = [128, 96, 64, 32, 16];
/// The numbers of rows of an expert in a job of a `mma.sync` kernel. 64 rows fit in every format.
const WARPS_GROUPS: [u32; 2] = [16, 64];
/// The fixed cost of a job, in tokens. It was measured for `wgmma` kernels and is assumed for
/// `mma.sync`.
const WARPS_FIXED: u32 = 36;

impl TensorCores {
    /// Returns the tensor cores of a device, or `None` if it is older than sm_80 or has too little
    /// shared memory.
    pub(crate) fn of_device(device: &Device) -> Option<TensorCores> {
        let properties = device.properties();
        let instructions = match (device.compute_capability(), properties.shared_per_block) {
            ((9, 0), _) => Instructions::Warpgroups,
            ((8.., _), MatmulSync::LARGE..) => Instructions::Warps { row_blocks: 2 },
            ((8.., _), MatmulSync::SMALL..) => Instructions::Warps { row_blocks: 1 },
            _ => return None,
        };
        Some(TensorCores {
            sms: properties.multiprocessors,
            instructions,
        })
    }

    /// Returns true if the device has `wgmma`, which attention can use too.
    pub(crate) fn has_warpgroups(self) -> bool {
        self.instructions == Instructions::Warpgroups
    }

    /// Returns the kernel that measures the peak rate of these matrix instructions.
    pub(crate) fn ceiling(self) -> Multiply {
        match self.instructions {
            Instructions::Warpgroups => Multiply::Wgmma,
            Instructions::Warps { .. } => Multiply::Mma,
        }
    }

    /// Returns the maximum number of blocks of a matmul. If the kernel has one block per job, the
    /// device schedules them.
    pub(crate) fn blocks(self, product: &ChunkGemm) -> u32 {
        match product {
            ChunkGemm::Warpgroups(kernel) => self.sms * kernel.form.resident(),
            ChunkGemm::Warps(_) => 1 << 16,
        }
    }

    /// Returns the maximum number of blocks of a matmul of experts.
    pub(crate) fn expert_blocks(self, product: &ExpertGemm) -> u32 {
        match product {
            ExpertGemm::Warpgroups(kernel) => self.sms * kernel.matmul.form.resident(),
            ExpertGemm::Warps(_) => 1 << 16,
        }
    }

    /// Returns the number of rows of an expert in a job of matmuls of experts. It changes no bits.
    pub(crate) fn expert_group(self, experts: &Experts, tokens: u32) -> u32 {
        let [warpgroups, warps] = expert_groups(experts, tokens);
        match self.instructions {
            Instructions::Warpgroups => warpgroups,
            Instructions::Warps { .. } => warps,
        }
    }

    /// Selects the matmul of sorted rows with the matrices of their experts, whose jobs have `group`
    /// rows.
    pub(crate) fn expert_product(
        self,
        rows: &MatrixRows,
        epilogue: Epilogue,
        group: u32,
        overlap: Overlap,
    ) -> ExpertGemm {
        match self.instructions {
            Instructions::Warpgroups => {
                let planned = MatmulExperts::planned(rows.format, epilogue, rows.order, group);
                ExpertGemm::Warpgroups(MatmulExperts {
                    matmul: Matmul {
                        overlap,
                        ..planned.matmul
                    },
                })
            }
            Instructions::Warps { row_blocks } => ExpertGemm::Warps(MatmulSyncExperts {
                matmul: MatmulSync {
                    format: rows.format,
                    epilogue,
                    rows: rows.order,
                    tokens: group,
                    row_blocks,
                },
            }),
        }
    }

    /// Selects the matmul of these rows with the tokens of a pass. The buffers hold `capacity`
    /// rows, a multiple of 64.
    pub(crate) fn product(
        self,
        rows: &MatrixRows,
        epilogue: Epilogue,
        PassShape {
            bucket: tokens,
            splits,
            overlap,
        }: PassShape,
        capacity: u32,
    ) -> ChunkGemm {
        match self.instructions {
            Instructions::Warpgroups => {
                let shape = Shape {
                    format: rows.format,
                    rows: rows.rows,
                    n: rows.n,
                    tokens,
                };
                let planned = self.planned(&shape, epilogue, rows, splits);
                let other = Matmul::new(rows.format, epilogue, rows.order, 64);

                // A tile may write past the tokens, so its width must divide the rows of the
                // buffers.
                let fits = |width: u32| width == 0 || capacity.is_multiple_of(width);
                let kernel = if [planned.tokens, planned.tail].into_iter().all(fits) {
                    planned
                } else {
                    other
                };
                let overlap = if overlap {
                    self.overlap(&kernel, rows, tokens)
                } else {
                    Overlap::No
                };
                ChunkGemm::Warpgroups(Matmul { overlap, ..kernel })
            }
            Instructions::Warps { row_blocks } => {
                ChunkGemm::Warps(self.mma_sync(rows, epilogue, [tokens, capacity], row_blocks))
            }
        }
    }

    /// Selects the matmul with a rule for the split of its columns.
    fn planned(
        self,
        shape: &Shape,
        epilogue: Epilogue,
        rows: &MatrixRows,
        splits: ColumnSplits,
    ) -> Matmul {
        let fastest = |shape: &Shape| Matmul::planned(shape, epilogue, rows.order, self.sms);
        let split = match splits {
            ColumnSplits::Fastest => return fastest(shape),
            ColumnSplits::Whole => 1,
            ColumnSplits::OfBucket(bucket) => {
                let shape = Shape {
                    tokens: bucket,
                    ..*shape
                };
                fastest(&shape).split
            }
        };
        Matmul::planned_with_split(shape, epilogue, rows.order, self.sms, split)
            .expect("a split for more tokens is possible for fewer")
    }

    /// Selects one kernel for the matmuls of two matrices with few tokens, if there is one. It
    /// saves the start and the end of a kernel.
    ///
    /// The two matmuls divide the multiprocessors in proportion to their rows. The second matrix
    /// has few rows and gets at least a quarter, because otherwise the splits of its columns would
    /// be too short.
    pub(super) fn pair(
        self,
        [first, second]: [&MatrixRows; 2],
        epilogue: Epilogue,
        shape: PassShape,
        capacity: u32,
    ) -> Option<MatmulPair> {
        // In a pair, the matrices have other splits. If the splits must be those of a larger bucket,
        // so must the decision for or against the pair.
        if let ColumnSplits::OfBucket(bucket) = shape.splits
            && bucket != shape.bucket
        {
            let larger = PassShape {
                bucket,
                splits: ColumnSplits::Fastest,
                ..shape
            };
            let pair = self.pair([first, second], epilogue, larger, capacity)?;
            let narrow = |matmul: Matmul| matmul.narrowed(shape.bucket);
            return MatmulPair::of(narrow(pair.first), narrow(pair.second));
        }

        let tokens = shape.bucket;
        if tokens > PAIRED {
            return None;
        }

        let planned = |sms: u32, rows: &MatrixRows| match (TensorCores { sms, ..self })
            .product(rows, epilogue, shape, capacity)
        {
            ChunkGemm::Warpgroups(kernel) => Some(kernel),
            ChunkGemm::Warps(_) => None,
        };
        let share = (self.sms * second.rows / (first.rows + second.rows)).max(self.sms / 4);
        let values = planned(share, second)?;

        // The first matmul gets all multiprocessors that the second one leaves idle.
        let rest = self
            .sms
            .saturating_sub(values.items(second.rows, tokens))
            .max(share);
        let pair = MatmulPair::of(planned(rest, first)?, values)?;
        let scratch = pair.first.scratch(first.rows, tokens);
        let others = pair.second.scratch(second.rows, tokens);

        // Both matmuls run at the same time, so they need separate parts of the scratch memory.
        let fits = (0..2).all(|i| scratch[i] + others[i] <= SCRATCH[i]);
        if fits { Some(pair) } else { None }
    }

    /// Returns the way in which a matmul of a pipeline overlaps.
    ///
    /// A matmul that is added to the residual stream is followed by a norm with one block per
    /// token. If these blocks start early, they share the few multiprocessors that the matmul
    /// leaves idle, and the other multiprocessors are idle when the norm may begin.
    fn overlap(self, kernel: &Matmul, rows: &MatrixRows, tokens: u32) -> Overlap {
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

    /// Selects a `mma.sync` kernel: the tile width with the least estimated cost.
    fn mma_sync(
        self,
        rows: &MatrixRows,
        epilogue: Epilogue,
        [tokens, capacity]: [u32; 2],
        row_blocks: u32,
    ) -> MatmulSync {
        let MatrixRows { format, order, .. } = *rows;
        let kernel = |width| MatmulSync {
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
            .map(kernel)
            .filter(MatmulSync::fits)
            .min_by_key(cost)
            .expect("a width of 64 tokens fits in every format")
    }
}

/// Returns the numbers of rows of a job of experts that a pass of this many tokens may have, with
/// each kind of matrix instructions. They decide the size of the buffers.
pub(crate) fn expert_groups(experts: &Experts, tokens: u32) -> [u32; 2] {
    let width = group_width(tokens, experts.chosen, experts.count);
    let [least, most] = WARPS_GROUPS;
    [width, width.clamp(least, most)]
}

impl<W: KernelDef, S: KernelDef> TensorKernel<W, S> {
    pub(crate) fn load(self, context: &Context) -> Result<LoadedKernel<W, S>, Error> {
        Ok(match self {
            TensorKernel::Warpgroups(kernel) => TensorKernel::Warpgroups(load(context, kernel)?),
            TensorKernel::Warps(kernel) => TensorKernel::Warps(load(context, kernel)?),
        })
    }
}

impl<W: KernelDef, S: KernelDef> LoadedKernel<W, S> {
    pub(crate) fn launch<'a>(
        &self,
        queue: &mut impl Queue,
        args: W::Args<Host<'a>>,
    ) -> Result<(), Error>
    where
        S: KernelDef<Args<Host<'a>> = W::Args<Host<'a>>>,
    {
        match self {
            TensorKernel::Warpgroups(kernel) => queue.launch(kernel, args),
            TensorKernel::Warps(kernel) => queue.launch(kernel, args),
        }
    }

    pub(crate) fn name(&self) -> String {
        match self {
            TensorKernel::Warpgroups(kernel) => kernel.def().name(),
            TensorKernel::Warps(kernel) => kernel.def().name(),
        }
    }
}

/// Loads a kernel that prefers shared memory over L1 cache, as the matmuls do. A multiprocessor
/// changes this split between kernels only while it is idle, so all kernels of a pass use the same
/// one.
pub(super) fn load<K: KernelDef>(context: &Context, kernel: K) -> Result<Kernel<K>, Error> {
    let kernel = signed::load(context, kernel)?;
    kernel.function().prefer_shared()?;
    Ok(kernel)
}

#[cfg(test)]
mod tests {
    use warpwright_driver::Driver;
    use warpwright_driver::memory::Buffer;
    use warpwright_kernels::matmul::Append;
    use warpwright_kernels::simple::rope::Pairing;
    use warpwright_kernels::{Format, RowOrder};

    use super::*;

    const CAPACITY: u32 = 2304;

    /// Returns a matrix whose contents do not matter.
    fn matrix(context: &Context, format: Format, rows: u32, n: u32) -> MatrixRows {
        MatrixRows {
            format,
            order: RowOrder::PLAIN,
            tiles: Buffer::zeroed(context, 0).unwrap().view(),
            unit: Buffer::zeroed(context, 0).unwrap().view(),
            rows,
            n,
            first: 0,
        }
    }

    /// Returns the number of splits of a matmul, which decides its bits.
    fn split(gemm: ChunkGemm) -> u32 {
        match gemm {
            ChunkGemm::Warpgroups(kernel) => kernel.split,
            ChunkGemm::Warps(_) => 1,
        }
    }

    fn splits(pair: Option<MatmulPair>) -> Option<[u32; 2]> {
        pair.map(|pair| [pair.first.split, pair.second.split])
    }

    /// The kernels that a bucket selects with the splits of a larger one have its splits, alone and
    /// in pairs, for the shapes of real models.
    #[test]
    fn the_splits_of_a_larger_bucket_are_kept() {
        let driver = Driver::from_library(warpwright_cuda_emu::library()).unwrap();
        let context = Context::new(&driver.devices().unwrap()[0]).unwrap();
        let append = Epilogue::Append(Append {
            head_dim: 128,
            pairing: Pairing::HalfSplit,
            bias: false,
        });
        let shapes = [
            (256, 64, 256),
            (1792, 256, 1536),
            (2560, 512, 2048),
            (5120, 1024, 4096),
            (4096, 4096, 14336),
            (17920, 1536, 1536),
            (28672, 4096, 4096),
        ];
        let mut changed = 0;
        for sms in [8, 66, 114, 132] {
            let cores = TensorCores {
                sms,
                instructions: Instructions::Warpgroups,
            };
            for (rows, others, n) in shapes {
                let first = matrix(&context, Format::Q4_K, rows, n);
                let second = matrix(&context, Format::Q6_K, others, n);
                for larger in [8, 16, 32, 64, 128, 256] {
                    let shape = |bucket, splits| PassShape {
                        bucket,
                        splits,
                        overlap: false,
                    };
                    let product = |shape| split(cores.product(&first, append, shape, CAPACITY));
                    let pair =
                        |shape| splits(cores.pair([&first, &second], append, shape, CAPACITY));
                    let widest = shape(larger, ColumnSplits::Fastest);
                    for bucket in [8, 16, 32, 64, 128, 256]
                        .into_iter()
                        .filter(|b| *b <= larger)
                    {
                        let kept = shape(bucket, ColumnSplits::OfBucket(larger));
                        assert_eq!(product(kept), product(widest), "{rows} x {n}, {bucket}");
                        assert_eq!(pair(kept), pair(widest), "{rows} x {n}, {bucket}");
                        let fastest = shape(bucket, ColumnSplits::Fastest);
                        let same =
                            product(fastest) == product(widest) && pair(fastest) == pair(widest);
                        changed += u32::from(!same);

                        let whole = shape(bucket, ColumnSplits::Whole);
                        assert_eq!(product(whole), 1);
                        assert!(matches!(pair(whole), None | Some([1, 1])));
                    }
                }
            }
        }
        assert!(changed > 100, "the fastest kernels differ: {changed}");
    }
}
