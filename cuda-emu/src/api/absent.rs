//! Entry points that exist and always return an error, so that a program that looks up all of them
//! can start.
//!
//! Their arguments are not read and not declared. In every 64-bit calling convention the caller
//! removes them.

use crate::api::export::exported;

const EXTERNAL: &str = "memory and semaphores of other interfaces are not emulated";
const GRAPHICS: &str = "graphics interfaces are not emulated";
const TEXTURES: &str = "mipmaps, texture references and sparse arrays are not emulated; use arrays with texture and surface objects";
const GREEN: &str =
    "green contexts are not emulated: a context has all multiprocessors of its device";
const BATCHES: &str =
    "batches and copies with attributes are not emulated; make the copies one by one";
const MULTICAST: &str =
    "multicast is not emulated: the devices exist within one process, without a fabric";
const CHECKPOINTS: &str = "checkpoints and core dumps are not emulated";
const OLD: &str = "this is an old interface, which is not emulated";
const REST: &str = "this is not emulated";

/// Declares the functions, with one line each: `since base symbol => reason`.
macro_rules! absent {
    ($($since:literal $base:ident $symbol:ident => $why:expr;)*) => {
        /// The functions, by their exported names.
        mod bodies {
            use warpwright_driver_sys::CUresult;

            use super::*;
            use crate::error::{Result, refuse};
            use crate::machine::Machine;

            $(
                pub(super) fn $symbol(_: &'static Machine) -> Result {
                    refuse(CUresult::NOT_SUPPORTED, $why)
                }
            )*
        }

        exported! { $(false $since $base $symbol() => bodies::$symbol;)* }
    };
}

absent! {
    10000 cuDestroyExternalMemory cuDestroyExternalMemory => EXTERNAL;
    10000 cuDestroyExternalSemaphore cuDestroyExternalSemaphore => EXTERNAL;
    10020 cuDeviceGetNvSciSyncAttributes cuDeviceGetNvSciSyncAttributes => EXTERNAL;
    10000 cuExternalMemoryGetMappedBuffer cuExternalMemoryGetMappedBuffer => EXTERNAL;
    10000 cuExternalMemoryGetMappedMipmappedArray cuExternalMemoryGetMappedMipmappedArray => EXTERNAL;
    11020 cuGraphAddExternalSemaphoresSignalNode cuGraphAddExternalSemaphoresSignalNode => EXTERNAL;
    11020 cuGraphAddExternalSemaphoresWaitNode cuGraphAddExternalSemaphoresWaitNode => EXTERNAL;
    11020 cuGraphExecExternalSemaphoresSignalNodeSetParams cuGraphExecExternalSemaphoresSignalNodeSetParams => EXTERNAL;
    11020 cuGraphExecExternalSemaphoresWaitNodeSetParams cuGraphExecExternalSemaphoresWaitNodeSetParams => EXTERNAL;
    11020 cuGraphExternalSemaphoresSignalNodeGetParams cuGraphExternalSemaphoresSignalNodeGetParams => EXTERNAL;
    11020 cuGraphExternalSemaphoresSignalNodeSetParams cuGraphExternalSemaphoresSignalNodeSetParams => EXTERNAL;
    11020 cuGraphExternalSemaphoresWaitNodeGetParams cuGraphExternalSemaphoresWaitNodeGetParams => EXTERNAL;
    11020 cuGraphExternalSemaphoresWaitNodeSetParams cuGraphExternalSemaphoresWaitNodeSetParams => EXTERNAL;
    10000 cuImportExternalMemory cuImportExternalMemory => EXTERNAL;
    10000 cuImportExternalSemaphore cuImportExternalSemaphore => EXTERNAL;
    10000 cuSignalExternalSemaphoresAsync cuSignalExternalSemaphoresAsync => EXTERNAL;
    10000 cuWaitExternalSemaphoresAsync cuWaitExternalSemaphoresAsync => EXTERNAL;
    7000 cuEGLStreamConsumerAcquireFrame cuEGLStreamConsumerAcquireFrame => GRAPHICS;
    7000 cuEGLStreamConsumerConnect cuEGLStreamConsumerConnect => GRAPHICS;
    8000 cuEGLStreamConsumerConnectWithFlags cuEGLStreamConsumerConnectWithFlags => GRAPHICS;
    7000 cuEGLStreamConsumerDisconnect cuEGLStreamConsumerDisconnect => GRAPHICS;
    7000 cuEGLStreamConsumerReleaseFrame cuEGLStreamConsumerReleaseFrame => GRAPHICS;
    7000 cuEGLStreamProducerConnect cuEGLStreamProducerConnect => GRAPHICS;
    7000 cuEGLStreamProducerDisconnect cuEGLStreamProducerDisconnect => GRAPHICS;
    7000 cuEGLStreamProducerPresentFrame cuEGLStreamProducerPresentFrame => GRAPHICS;
    7000 cuEGLStreamProducerReturnFrame cuEGLStreamProducerReturnFrame => GRAPHICS;
    3020 cuGLCtxCreate cuGLCtxCreate_v2 => GRAPHICS;
    6050 cuGLGetDevices cuGLGetDevices_v2 => GRAPHICS;
    2000 cuGLInit cuGLInit => GRAPHICS;
    7000 cuGLMapBufferObject cuGLMapBufferObject_v2 => GRAPHICS;
    7000 cuGLMapBufferObjectAsync cuGLMapBufferObjectAsync_v2 => GRAPHICS;
    2000 cuGLRegisterBufferObject cuGLRegisterBufferObject => GRAPHICS;
    2030 cuGLSetBufferObjectMapFlags cuGLSetBufferObjectMapFlags => GRAPHICS;
    2000 cuGLUnmapBufferObject cuGLUnmapBufferObject => GRAPHICS;
    2030 cuGLUnmapBufferObjectAsync cuGLUnmapBufferObjectAsync => GRAPHICS;
    2000 cuGLUnregisterBufferObject cuGLUnregisterBufferObject => GRAPHICS;
    7000 cuGraphicsEGLRegisterImage cuGraphicsEGLRegisterImage => GRAPHICS;
    3000 cuGraphicsGLRegisterBuffer cuGraphicsGLRegisterBuffer => GRAPHICS;
    3000 cuGraphicsGLRegisterImage cuGraphicsGLRegisterImage => GRAPHICS;
    7000 cuGraphicsMapResources cuGraphicsMapResources => GRAPHICS;
    7000 cuGraphicsResourceGetMappedEglFrame cuGraphicsResourceGetMappedEglFrame => GRAPHICS;
    5000 cuGraphicsResourceGetMappedMipmappedArray cuGraphicsResourceGetMappedMipmappedArray => GRAPHICS;
    3020 cuGraphicsResourceGetMappedPointer cuGraphicsResourceGetMappedPointer_v2 => GRAPHICS;
    6050 cuGraphicsResourceSetMapFlags cuGraphicsResourceSetMapFlags_v2 => GRAPHICS;
    3000 cuGraphicsSubResourceGetMappedArray cuGraphicsSubResourceGetMappedArray => GRAPHICS;
    7000 cuGraphicsUnmapResources cuGraphicsUnmapResources => GRAPHICS;
    3000 cuGraphicsUnregisterResource cuGraphicsUnregisterResource => GRAPHICS;
    3010 cuGraphicsVDPAURegisterOutputSurface cuGraphicsVDPAURegisterOutputSurface => GRAPHICS;
    3010 cuGraphicsVDPAURegisterVideoSurface cuGraphicsVDPAURegisterVideoSurface => GRAPHICS;
    3020 cuVDPAUCtxCreate cuVDPAUCtxCreate_v2 => GRAPHICS;
    3010 cuVDPAUGetDevice cuVDPAUGetDevice => GRAPHICS;
    2020 cuWGLGetDevice cuWGLGetDevice => GRAPHICS;
    11060 cuArrayGetMemoryRequirements cuArrayGetMemoryRequirements => TEXTURES;
    11020 cuArrayGetPlane cuArrayGetPlane => TEXTURES;
    11010 cuArrayGetSparseProperties cuArrayGetSparseProperties => TEXTURES;
    11010 cuDeviceGetTexture1DLinearMaxWidth cuDeviceGetTexture1DLinearMaxWidth => TEXTURES;
    11010 cuMemMapArrayAsync cuMemMapArrayAsync => TEXTURES;
    5000 cuMipmappedArrayCreate cuMipmappedArrayCreate => TEXTURES;
    5000 cuMipmappedArrayDestroy cuMipmappedArrayDestroy => TEXTURES;
    5000 cuMipmappedArrayGetLevel cuMipmappedArrayGetLevel => TEXTURES;
    11060 cuMipmappedArrayGetMemoryRequirements cuMipmappedArrayGetMemoryRequirements => TEXTURES;
    11010 cuMipmappedArrayGetSparseProperties cuMipmappedArrayGetSparseProperties => TEXTURES;
    3000 cuModuleGetSurfRef cuModuleGetSurfRef => TEXTURES;
    2000 cuModuleGetTexRef cuModuleGetTexRef => TEXTURES;
    2000 cuParamSetTexRef cuParamSetTexRef => TEXTURES;
    3000 cuSurfRefGetArray cuSurfRefGetArray => TEXTURES;
    3000 cuSurfRefSetArray cuSurfRefSetArray => TEXTURES;
    2000 cuTexRefCreate cuTexRefCreate => TEXTURES;
    2000 cuTexRefDestroy cuTexRefDestroy => TEXTURES;
    3020 cuTexRefGetAddress cuTexRefGetAddress_v2 => TEXTURES;
    2000 cuTexRefGetAddressMode cuTexRefGetAddressMode => TEXTURES;
    2000 cuTexRefGetArray cuTexRefGetArray => TEXTURES;
    8000 cuTexRefGetBorderColor cuTexRefGetBorderColor => TEXTURES;
    2000 cuTexRefGetFilterMode cuTexRefGetFilterMode => TEXTURES;
    2000 cuTexRefGetFlags cuTexRefGetFlags => TEXTURES;
    2000 cuTexRefGetFormat cuTexRefGetFormat => TEXTURES;
    5000 cuTexRefGetMaxAnisotropy cuTexRefGetMaxAnisotropy => TEXTURES;
    5000 cuTexRefGetMipmapFilterMode cuTexRefGetMipmapFilterMode => TEXTURES;
    5000 cuTexRefGetMipmapLevelBias cuTexRefGetMipmapLevelBias => TEXTURES;
    5000 cuTexRefGetMipmapLevelClamp cuTexRefGetMipmapLevelClamp => TEXTURES;
    5000 cuTexRefGetMipmappedArray cuTexRefGetMipmappedArray => TEXTURES;
    3020 cuTexRefSetAddress cuTexRefSetAddress_v2 => TEXTURES;
    4010 cuTexRefSetAddress2D cuTexRefSetAddress2D_v3 => TEXTURES;
    2000 cuTexRefSetAddressMode cuTexRefSetAddressMode => TEXTURES;
    2000 cuTexRefSetArray cuTexRefSetArray => TEXTURES;
    8000 cuTexRefSetBorderColor cuTexRefSetBorderColor => TEXTURES;
    2000 cuTexRefSetFilterMode cuTexRefSetFilterMode => TEXTURES;
    2000 cuTexRefSetFlags cuTexRefSetFlags => TEXTURES;
    2000 cuTexRefSetFormat cuTexRefSetFormat => TEXTURES;
    5000 cuTexRefSetMaxAnisotropy cuTexRefSetMaxAnisotropy => TEXTURES;
    5000 cuTexRefSetMipmapFilterMode cuTexRefSetMipmapFilterMode => TEXTURES;
    5000 cuTexRefSetMipmapLevelBias cuTexRefSetMipmapLevelBias => TEXTURES;
    5000 cuTexRefSetMipmapLevelClamp cuTexRefSetMipmapLevelClamp => TEXTURES;
    5000 cuTexRefSetMipmappedArray cuTexRefSetMipmappedArray => TEXTURES;
    12040 cuCtxFromGreenCtx cuCtxFromGreenCtx => GREEN;
    12040 cuCtxGetDevResource cuCtxGetDevResource => GREEN;
    12040 cuDevResourceGenerateDesc cuDevResourceGenerateDesc => GREEN;
    13010 cuDevSmResourceSplit cuDevSmResourceSplit => GREEN;
    12040 cuDevSmResourceSplitByCount cuDevSmResourceSplitByCount => GREEN;
    12040 cuDeviceGetDevResource cuDeviceGetDevResource => GREEN;
    12040 cuGreenCtxCreate cuGreenCtxCreate => GREEN;
    12040 cuGreenCtxDestroy cuGreenCtxDestroy => GREEN;
    12040 cuGreenCtxGetDevResource cuGreenCtxGetDevResource => GREEN;
    12090 cuGreenCtxGetId cuGreenCtxGetId => GREEN;
    12040 cuGreenCtxRecordEvent cuGreenCtxRecordEvent => GREEN;
    12050 cuGreenCtxStreamCreate cuGreenCtxStreamCreate => GREEN;
    12040 cuGreenCtxWaitEvent cuGreenCtxWaitEvent => GREEN;
    13010 cuStreamBeginCaptureToCig cuStreamBeginCaptureToCig => GREEN;
    13010 cuStreamEndCaptureToCig cuStreamEndCaptureToCig => GREEN;
    13010 cuStreamGetDevResource cuStreamGetDevResource => GREEN;
    12040 cuStreamGetGreenCtx cuStreamGetGreenCtx => GREEN;
    13050 cuFabricCpyBatchAsync cuFabricCpyBatchAsync => BATCHES;
    12060 cuMemBatchDecompressAsync cuMemBatchDecompressAsync => BATCHES;
    13000 cuMemDiscardAndPrefetchBatchAsync cuMemDiscardAndPrefetchBatchAsync => BATCHES;
    13000 cuMemDiscardBatchAsync cuMemDiscardBatchAsync => BATCHES;
    13000 cuMemPrefetchBatchAsync cuMemPrefetchBatchAsync => BATCHES;
    13000 cuMemcpy3DBatchAsync cuMemcpy3DBatchAsync_v2 => BATCHES;
    13020 cuMemcpy3DWithAttributesAsync cuMemcpy3DWithAttributesAsync => BATCHES;
    13000 cuMemcpyBatchAsync cuMemcpyBatchAsync_v2 => BATCHES;
    13020 cuMemcpyWithAttributesAsync cuMemcpyWithAttributesAsync => BATCHES;
    13040 cuDeviceGetCliqueCount cuDeviceGetCliqueCount => MULTICAST;
    13040 cuDeviceGetCliqueInfo cuDeviceGetCliqueInfo => MULTICAST;
    13040 cuDeviceGetFabricClusterUuid cuDeviceGetFabricClusterUuid => MULTICAST;
    13030 cuLogicalEndpointAddDevice cuLogicalEndpointAddDevice => MULTICAST;
    13030 cuLogicalEndpointBindAddr cuLogicalEndpointBindAddr => MULTICAST;
    13030 cuLogicalEndpointBindMem cuLogicalEndpointBindMem => MULTICAST;
    13030 cuLogicalEndpointCreate cuLogicalEndpointCreate => MULTICAST;
    13030 cuLogicalEndpointDestroy cuLogicalEndpointDestroy => MULTICAST;
    13030 cuLogicalEndpointExport cuLogicalEndpointExport => MULTICAST;
    13030 cuLogicalEndpointGetLimits cuLogicalEndpointGetLimits => MULTICAST;
    13030 cuLogicalEndpointIdRelease cuLogicalEndpointIdRelease => MULTICAST;
    13030 cuLogicalEndpointIdReserve cuLogicalEndpointIdReserve => MULTICAST;
    13030 cuLogicalEndpointImport cuLogicalEndpointImport => MULTICAST;
    13030 cuLogicalEndpointQuery cuLogicalEndpointQuery => MULTICAST;
    13030 cuLogicalEndpointUnbind cuLogicalEndpointUnbind => MULTICAST;
    12010 cuMulticastAddDevice cuMulticastAddDevice => MULTICAST;
    13010 cuMulticastBindAddr cuMulticastBindAddr => MULTICAST;
    13010 cuMulticastBindMem cuMulticastBindMem => MULTICAST;
    12010 cuMulticastCreate cuMulticastCreate => MULTICAST;
    12010 cuMulticastGetGranularity cuMulticastGetGranularity => MULTICAST;
    12010 cuMulticastUnbind cuMulticastUnbind => MULTICAST;
    13040 cuCheckpointOperationComplete cuCheckpointOperationComplete => CHECKPOINTS;
    12080 cuCheckpointProcessCheckpoint cuCheckpointProcessCheckpoint => CHECKPOINTS;
    12080 cuCheckpointProcessGetRestoreThreadId cuCheckpointProcessGetRestoreThreadId => CHECKPOINTS;
    12080 cuCheckpointProcessGetState cuCheckpointProcessGetState => CHECKPOINTS;
    12080 cuCheckpointProcessLock cuCheckpointProcessLock => CHECKPOINTS;
    12080 cuCheckpointProcessRestore cuCheckpointProcessRestore => CHECKPOINTS;
    12080 cuCheckpointProcessUnlock cuCheckpointProcessUnlock => CHECKPOINTS;
    13020 cuCoredumpDeregisterCompleteCallback cuCoredumpDeregisterCompleteCallback => CHECKPOINTS;
    13020 cuCoredumpDeregisterStartCallback cuCoredumpDeregisterStartCallback => CHECKPOINTS;
    12010 cuCoredumpGetAttribute cuCoredumpGetAttribute => CHECKPOINTS;
    12010 cuCoredumpGetAttributeGlobal cuCoredumpGetAttributeGlobal => CHECKPOINTS;
    13020 cuCoredumpRegisterCompleteCallback cuCoredumpRegisterCompleteCallback => CHECKPOINTS;
    13020 cuCoredumpRegisterStartCallback cuCoredumpRegisterStartCallback => CHECKPOINTS;
    12010 cuCoredumpSetAttribute cuCoredumpSetAttribute => CHECKPOINTS;
    12010 cuCoredumpSetAttributeGlobal cuCoredumpSetAttributeGlobal => CHECKPOINTS;
    2000 cuCtxDetach cuCtxDetach => OLD;
    2000 cuDeviceGetProperties cuDeviceGetProperties => OLD;
    2000 cuFuncSetBlockShape cuFuncSetBlockShape => OLD;
    2000 cuFuncSetSharedSize cuFuncSetSharedSize => OLD;
    2000 cuLaunch cuLaunch => OLD;
    9000 cuLaunchCooperativeKernelMultiDevice cuLaunchCooperativeKernelMultiDevice => OLD;
    2000 cuLaunchGrid cuLaunchGrid => OLD;
    2000 cuLaunchGridAsync cuLaunchGridAsync => OLD;
    2000 cuParamSetSize cuParamSetSize => OLD;
    2000 cuParamSetf cuParamSetf => OLD;
    2000 cuParamSeti cuParamSeti => OLD;
    2000 cuParamSetv cuParamSetv => OLD;
    4000 cuProfilerInitialize cuProfilerInitialize => OLD;
    13000 cuDeviceGetHostAtomicCapabilities cuDeviceGetHostAtomicCapabilities => REST;
    13000 cuDeviceGetP2PAtomicCapabilities cuDeviceGetP2PAtomicCapabilities => REST;
    12040 cuDeviceRegisterAsyncNotification cuDeviceRegisterAsyncNotification => REST;
    12040 cuDeviceUnregisterAsyncNotification cuDeviceUnregisterAsyncNotification => REST;
    9000 cuEventCreateFromEGLSync cuEventCreateFromEGLSync => REST;
    13040 cuMemGetLocationInfo cuMemGetLocationInfo => REST;
    13030 cuStreamBeginRecaptureToGraph cuStreamBeginRecaptureToGraph => REST;
    13050 cuTensorMapSetAllocationClass cuTensorMapSetAllocationClass => REST;
}
