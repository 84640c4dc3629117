//! The few functions of cuBLAS that a matmul needs, from a library opened by its path.

use std::ffi::{c_int, c_void};
use std::path::Path;

use libloading::Library;
use warpwright_driver::Context;
use warpwright_driver::memory::{Buffer, View, f16};
use warpwright_driver::stream::Stream;

use crate::{Failure, Shape};

type Handle = *mut c_void;
type Create = unsafe extern "C" fn(*mut Handle) -> c_int;
type SetStream = unsafe extern "C" fn(Handle, *mut c_void) -> c_int;
type SetWorkspace = unsafe extern "C" fn(Handle, *mut c_void, usize) -> c_int;
/// Handle; operations on a and b; m, n, k; alpha; a, its type and stride; b; beta; c; type of the
/// sums; algorithm.
type GemmEx = unsafe extern "C" fn(
    Handle,
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    *const f32,
    *const c_void,
    c_int,
    c_int,
    *const c_void,
    c_int,
    c_int,
    *const f32,
    *mut c_void,
    c_int,
    c_int,
    c_int,
    c_int,
) -> c_int;

/// `CUBLAS_OP_N` and `CUBLAS_OP_T`.
const PLAIN: c_int = 0;
const TRANSPOSED: c_int = 1;
/// `CUDA_R_16F`, `CUBLAS_COMPUTE_32F` and `CUBLAS_GEMM_DEFAULT`.
const HALF: c_int = 2;
const SUMS_F32: c_int = 68;
const DEFAULT: c_int = -1;
/// The size that NVIDIA recommends for Hopper. cuBLAS can be captured only if the caller provides
/// the workspace.
const WORKSPACE: usize = 32 << 20;

pub struct Cublas {
    handle: Handle,
    gemm: GemmEx,
    context: Context,
    _workspace: Buffer<u8>,
    /// The last field, because the functions are in it. It is never closed, because cuBLAS has
    /// threads and memory that outlive its handles.
    _library: std::mem::ManuallyDrop<Library>,
}

impl Cublas {
    /// Opens a library, and lets it work on the stream.
    pub fn open(path: &Path, context: &Context, stream: &Stream) -> Result<Self, Failure> {
        // SAFETY: the caller ensures that the library is cuBLAS, and these are the types of its
        // functions.
        let library = std::mem::ManuallyDrop::new(unsafe { Library::new(path) }?);
        let workspace = Buffer::<u8>::zeroed(context, WORKSPACE)?;
        let memory = std::ptr::without_provenance_mut(workspace.address() as usize);
        let mut handle = std::ptr::null_mut();

        // SAFETY: as above; the stream and the memory live as long as the handle is used.
        let gemm = unsafe {
            let create = *library.get::<Create>(b"cublasCreate_v2\0")?;
            let set_stream = *library.get::<SetStream>(b"cublasSetStream_v2\0")?;
            let set_workspace = *library.get::<SetWorkspace>(b"cublasSetWorkspace_v2\0")?;
            context.run(|| {
                expect("cublasCreate", create(&mut handle))?;
                expect("cublasSetStream", set_stream(handle, stream.raw().0))?;
                expect(
                    "cublasSetWorkspace",
                    set_workspace(handle, memory, WORKSPACE),
                )
            })??;
            *library.get::<GemmEx>(b"cublasGemmEx\0")?
        };
        let context = context.clone();
        Ok(Self {
            handle,
            gemm,
            context,
            _workspace: workspace,
            _library: library,
        })
    }

    /// `y = x w^T`. cuBLAS has columns where we have rows: its matrices are the transposed ones,
    /// and so is the product.
    pub fn multiply(
        &self,
        shape: Shape,
        x: &View<f16>,
        w: &View<f16>,
        y: &View<f16>,
    ) -> Result<(), Failure> {
        let [m, n, k] = shape.map(|v| v as c_int);
        let [x, w, y] =
            [x, w, y].map(|v| std::ptr::without_provenance_mut::<c_void>(v.address() as usize));
        let (one, zero) = (1.0, 0.0);

        // SAFETY: the matrices have these shapes, and the caller keeps them.
        let code = self.context.run(|| unsafe {
            (self.gemm)(
                self.handle,
                TRANSPOSED,
                PLAIN,
                n,
                m,
                k,
                &one,
                w,
                HALF,
                k,
                x,
                HALF,
                k,
                &zero,
                y,
                HALF,
                n,
                SUMS_F32,
                DEFAULT,
            )
        })?;
        expect("cublasGemmEx", code)
    }
}

fn expect(function: &str, code: c_int) -> Result<(), Failure> {
    if code == 0 {
        Ok(())
    } else {
        Err(format!("{function} gave the status {code}").into())
    }
}
