//! Much memory of the host on its way to the device, at the speed of the bus.
//!
//! The bus is only fast from pinned memory. [`HostBytes`] pins what is there, such as a mapped file, and the device
//! copies it without anybody else's work. Where that is refused, or where the bytes are still to be made,
//! [`Staging`] goes through a few pinned pieces: while the device copies one, the host fills the next.

use std::ops::Range;
use std::sync::Arc;

use driver_sys::CUmemhostregister_flags;
use ptx_gen::Elem;

use crate::context::{HostPointer, Owner, Release};
use crate::event::expect_same;
use crate::queue::{Queue, Work};
use crate::{Context, Error, Event, Pinned, Stream, View};

/// Pinned pieces that are filled and copied in turn.
pub struct Staging {
    pieces: Vec<Piece>,
    next: usize,
}

struct Piece {
    memory: Pinned<u64>,
    /// Recorded behind the copy that still reads the memory.
    copied: Event,
}

impl Staging {
    /// So many pieces of so many bytes. Two keep a bus busy if they take longer to copy than to queue: some MiB.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], or what else the driver refuses.
    ///
    /// # Panics
    /// If there are no pieces, or less than 8 bytes to one.
    pub fn new(context: &Context, pieces: usize, bytes: usize) -> Result<Self, Error> {
        assert!(pieces > 0 && bytes >= 8, "{pieces} pieces of {bytes} bytes stage nothing");
        let piece = |_| {
            let (memory, copied) = (Pinned::zeroed(context, bytes / 8)?, Event::untimed(context)?);
            Ok(Piece { memory, copied })
        };
        Ok(Self { pieces: (0..pieces).map(piece).collect::<Result<_, Error>>()?, next: 0 })
    }

    /// Writes a view in the order of the stream, a piece at a time: `fill` is told which elements and fills them.
    /// They hold anything when it begins. On return `fill` is done with all of them, and the last copies may not be.
    ///
    /// # Errors
    /// A view or stream of another context, a stream that captures, or what the driver reports.
    pub fn write_with<T: Elem>(
        &mut self,
        mut stream: &Stream,
        to: &View<T>,
        mut fill: impl FnMut(Range<usize>, &mut [T]),
    ) -> Result<(), Error> {
        let mut start = 0;
        while start < to.len() {
            let piece = &self.pieces[self.next];
            let from = piece.memory.cast::<T>()?;
            let range = start..to.len().min(start + from.len());
            piece.copied.synchronize()?;
            // SAFETY: nobody else has this memory, the device has read it, it is aligned to 8 bytes and has that
            // many elements, of which every bit pattern is a value.
            fill(range.clone(), unsafe {
                std::slice::from_raw_parts_mut(piece.memory.host().cast(), range.len())
            });
            stream.push(Work::copy(&from.view_range(0..range.len()), &to.view_range(range.clone()))?)?;
            piece.copied.record(stream)?;
            self.next = (self.next + 1) % self.pieces.len();
            start = range.end;
        }
        Ok(())
    }

    /// Writes elements in the order of the stream. On return they have been read, and the last copies may not be done.
    ///
    /// # Errors
    /// A length that is not the view's; else as [`write_with`](Self::write_with).
    pub fn write<T: Elem>(&mut self, stream: &Stream, to: &View<T>, from: &[T]) -> Result<(), Error> {
        to.expect_len("write", from.len())?;
        self.write_with(stream, to, |range, piece| piece.copy_from_slice(&from[range]))
    }
}

/// Bytes of the host that do not change, pinned where they lie if the driver can.
pub struct HostBytes {
    pinned: Arc<Registered>,
    staging: Option<Staging>,
}

/// Bytes and their owner, which keeps them where they are.
struct Registered {
    context: Context,
    start: HostPointer,
    len: usize,
    registered: bool,
    owner: Owner,
}

/// Pieces for bytes that cannot be pinned.
const PIECES: usize = 4;
const PIECE_BYTES: usize = 8 << 20;

impl HostBytes {
    /// Pins the bytes of an owner, such as a mapped file. Where the driver refuses, copies go through [`Staging`].
    ///
    /// # Errors
    /// What the driver refuses of the pieces to stage with.
    pub fn new<B>(context: &Context, owner: Arc<B>) -> Result<Self, Error>
    where
        B: AsRef<[u8]> + Send + Sync + 'static,
    {
        let bytes = B::as_ref(&owner);
        let (start, len) = (HostPointer(bytes.as_ptr().cast_mut().cast()), bytes.len());
        let refused = register(context, bytes).err();
        let staging = match &refused {
            Some(error) => {
                tracing::debug!(%error, len, "host memory is not pinned, and copied through pieces that are");
                Some(Staging::new(context, PIECES, PIECE_BYTES.min(len.next_multiple_of(8).max(8)))?)
            }
            None => None,
        };
        let (context, registered) = (context.clone(), refused.is_none());
        let pinned = Arc::new(Registered { context, start, len, registered, owner });
        Ok(Self { pinned, staging })
    }

    /// Whether the bytes themselves are pinned.
    pub fn is_pinned(&self) -> bool {
        self.pinned.registered
    }

    /// How many bytes there are.
    pub fn len(&self) -> usize {
        self.pinned.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes a view from the bytes that begin at `start`, in the order of the stream. The copies may not be done on
    /// return; the stream keeps what they need.
    ///
    /// # Errors
    /// More bytes than there are from `start` on, a view or stream of another context, a stream that captures, or
    /// what the driver reports.
    pub fn copy<T: Elem>(&mut self, stream: &Stream, start: usize, to: &View<T>) -> Result<(), Error> {
        let (wanted, there) = (to.region().bytes(), self.len());
        let end = start.saturating_add(wanted);
        let Some(from) = self.pinned.bytes().get(start..end) else {
            let problem =
                format!("{} takes {wanted} bytes from {start} on, and there are {there}", to.region());
            return Err(Error::Transfer { what: "copy from the host", problem });
        };
        match &mut self.staging {
            Some(staging) => staging.write(stream, &to.cast::<u8>()?, from),
            None => self.pinned.copy(stream, from, to),
        }
    }
}

/// Pins bytes where they lie, as read-only where the device knows that.
fn register(context: &Context, bytes: &[u8]) -> Result<(), Error> {
    let read_only = context.device().properties().registers_read_only;
    let flag = if read_only { CUmemhostregister_flags::READ_ONLY } else { CUmemhostregister_flags::empty() };
    let flags = CUmemhostregister_flags::PORTABLE | flag;
    let _current = context.enter()?;
    let start = bytes.as_ptr().cast_mut().cast();
    // SAFETY: the bytes are there until they are unpinned, and nothing writes them through the pointer.
    unsafe { cu!(context.driver(), cuMemHostRegister_v2(start, bytes.len(), flags)) }?;
    Ok(())
}

impl Registered {
    fn bytes(&self) -> &[u8] {
        // SAFETY: they were borrowed from the owner, which is shared from then on and lives as long as this.
        unsafe { std::slice::from_raw_parts(self.start.0.cast(), self.len) }
    }

    /// Copies bytes of these.
    fn copy<T: Elem>(self: &Arc<Self>, stream: &Stream, from: &[u8], to: &View<T>) -> Result<(), Error> {
        expect_same("host memory", &self.context, "a stream", stream.context())?;
        to.region().expect_in(&self.context, "a stream")?;
        if stream.is_capturing() {
            return Err(Error::Capturing { work: "copy from the host".into() });
        }
        if !from.is_empty() {
            let _current = self.context.enter()?;
            let (driver, raw, start) = (self.context.driver(), stream.raw(), from.as_ptr().cast());
            // SAFETY: both are of that length, and the stream keeps their owners until the copy is done.
            unsafe { cu!(driver, cuMemcpyHtoDAsync_v2(to.address(), start, from.len(), raw)) }?;
        }
        stream.keep([self.clone() as Owner, to.region().owner()]);
        Ok(())
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        if self.registered {
            self.context.release(Release::Registered(self.start, self.owner.clone()));
        }
    }
}
