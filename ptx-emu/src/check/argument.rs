//! Buffers and arguments of a check.

use super::element::Element;
use crate::machine::device::device_memory::Memory;
use crate::machine::device::images::descriptor::{Image, Sampler};
use crate::machine::device::memory_error::MemoryError;
use crate::module::analysis::element_type::ElementType;

/// A buffer in device memory, to which arguments may point.
///
/// Every schedule starts with a new copy of its contents.
#[derive(Clone, Debug)]
pub struct Buffer {
    /// The name in findings.
    pub name: String,
    /// The accesses that the kernel may perform.
    pub role: Role,
    /// The type of the elements.
    pub element: ElementType,
    /// The number of elements.
    pub count: usize,
    /// The contents before the launch, or `None` for an uninitialized buffer.
    pub contents: Option<Vec<u8>>,
    /// The expected contents after the launch.
    pub expected: Option<Expected>,
    /// The texture or surface over the buffer. If set, arguments receive its handle instead of the
    /// address.
    pub view: Option<View>,
}

/// A texture or surface over a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// The image, which starts at the beginning of the buffer. Its address is ignored.
    pub image: Image,
    /// The sampler of a texture, or `None` for a surface.
    pub sampler: Option<Sampler>,
}

/// The accesses to a buffer that a kernel may perform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Reads only. It is a finding if the buffer has changed after the launch.
    In,
    /// Writes. The buffer is uninitialized before the launch.
    Out,
    /// Reads and writes.
    InOut,
}

/// The expected contents of a buffer after the launch.
#[derive(Clone, Debug)]
pub struct Expected {
    /// The bytes of all elements.
    pub bytes: Vec<u8>,
    /// The allowed difference of an element, relative to the larger of 1 and the magnitude of the
    /// expected value.
    pub tolerance: f64,
}

impl Buffer {
    /// Creates a buffer that contains `values` before the launch.
    ///
    /// Without [`expected`](Buffer::expected) contents, a changed buffer is a finding only if its
    /// role is [`Role::In`].
    pub fn filled<T: Element>(name: &str, role: Role, values: &[T]) -> Buffer {
        let contents = values.iter().flat_map(|value| value.encode()).collect();
        Buffer {
            contents: Some(contents),
            role,
            ..Buffer::empty(name, T::TYPE, values.len())
        }
    }

    /// Creates an uninitialized buffer of `count` elements with the role [`Role::Out`].
    pub fn empty(name: &str, element: ElementType, count: usize) -> Buffer {
        Buffer {
            name: name.into(),
            role: Role::Out,
            element,
            count,
            contents: None,
            expected: None,
            view: None,
        }
    }

    /// Returns the size of all elements in bytes.
    pub fn bytes(&self) -> usize {
        self.count.saturating_mul(self.element.bytes())
    }

    /// Allocates and fills the buffer and returns its address.
    pub(super) fn place(&self, memory: &Memory) -> Result<u64, MemoryError> {
        let address = memory.alloc(self.bytes() as u64)?;
        memory.set_label(address, &self.name);
        if let Some(contents) = &self.contents {
            memory.write(address, contents)?;
        }
        Ok(address)
    }

    /// Returns the value of an argument that names the buffer: the handle of its texture or
    /// surface, or its address.
    pub(super) fn handle(&self, memory: &Memory, address: u64) -> Result<u64, String> {
        let Some(view) = &self.view else {
            return Ok(address);
        };

        let has = self.bytes() as u64;
        let needs = view.image.bytes();
        if has < needs {
            return Err(format!("its image has {needs} bytes, and the buffer {has}"));
        }

        let image = Image {
            address,
            ..view.image.clone()
        };
        let made = match &view.sampler {
            Some(sampler) => memory.add_texture(&image, sampler),
            None => memory.add_surface(&image),
        };
        made.map_err(|error| error.to_string())
    }

    /// Returns the contents, and the number of uninitialized bytes.
    pub(super) fn take(
        &self,
        memory: &Memory,
        address: u64,
    ) -> Result<(Vec<u8>, u64), MemoryError> {
        let size = self.bytes();
        let mut bytes = Vec::new();
        bytes
            .try_reserve_exact(size)
            .map_err(|_| memory.full(size as u64))?;
        bytes.resize(size, 0);
        memory.read(address, &mut bytes)?;
        let unwritten = memory.count_uninitialised(address, size as u64)?;
        Ok((bytes, unwritten))
    }
}

/// The bytes of an argument, in which addresses of buffers may occur.
///
/// # Example
/// ```
/// use ptx_emu::check::Argument;
///
/// let scalar = Argument::from(2f32);
/// assert_eq!(scalar.bytes(), 4);
///
/// // struct { char c; float *p; }, where `p` points to the third float of buffer 0.
/// let structure = Argument::structure([1u8.into(), Argument::pointer(0, 8)]);
/// assert_eq!(structure.bytes(), 16);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Argument(pub Vec<Field>);

/// A section of an argument: constant bytes, or an address that is known only at the launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Field {
    /// Constant bytes.
    Bytes(Vec<u8>),
    /// The address of a buffer, or the handle of its texture or surface.
    Pointer {
        /// The index of the buffer in [`Check::buffers`](super::Check::buffers).
        buffer: usize,
        /// The offset from the beginning of the buffer in bytes.
        offset: u64,
    },
}

impl Field {
    fn bytes(&self) -> usize {
        match self {
            Field::Bytes(bytes) => bytes.len(),
            Field::Pointer { .. } => 8,
        }
    }
}

impl Argument {
    /// Creates a pointer to byte `offset` of the buffer with index `buffer`.
    pub fn pointer(buffer: usize, offset: u64) -> Argument {
        Argument(vec![Field::Pointer { buffer, offset }])
    }

    /// Creates a structure with the layout of C.
    ///
    /// Each member is one field. It is aligned to its size, and the whole structure to the largest
    /// member.
    pub fn structure(members: impl IntoIterator<Item = Argument>) -> Argument {
        let mut fields = Vec::new();
        let mut at = 0usize;
        let mut align = 1;
        let pad_to = |fields: &mut Vec<Field>, at: &mut usize, align: usize| {
            let end = at.next_multiple_of(align);
            fields.push(Field::Bytes(vec![0; end - *at]));
            *at = end;
        };
        for field in members.into_iter().flat_map(|member| member.0) {
            let bytes = field.bytes().max(1);
            // A member whose size is not a power of two is an array of bytes, which needs no
            // alignment.
            let own = if bytes.is_power_of_two() { bytes } else { 1 };
            align = align.max(own);
            pad_to(&mut fields, &mut at, own);
            at += field.bytes();
            fields.push(field);
        }

        pad_to(&mut fields, &mut at, align);
        fields.retain(|field| field.bytes() > 0);
        Argument(fields)
    }

    /// Returns the size in bytes, with the padding of structures.
    pub fn bytes(&self) -> usize {
        self.0.iter().map(Field::bytes).sum()
    }

    /// Appends the bytes to a parameter block.
    pub(super) fn write(&self, addresses: &[u64], to: &mut Vec<u8>) {
        for field in &self.0 {
            match field {
                Field::Bytes(bytes) => to.extend(bytes),
                Field::Pointer { buffer, offset } => {
                    let base = addresses.get(*buffer).copied().unwrap_or(0);
                    to.extend(base.wrapping_add(*offset).to_le_bytes());
                }
            }
        }
    }
}

impl<T: Element> From<T> for Argument {
    fn from(value: T) -> Argument {
        Argument(vec![Field::Bytes(value.encode())])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_are_laid_out_as_in_c() {
        let members = [
            1u8.into(),
            2u32.into(),
            3u16.into(),
            Argument::pointer(0, 4),
            5u8.into(),
        ];
        let structure = Argument::structure(members);
        let mut bytes = Vec::new();
        structure.write(&[0x1000], &mut bytes);
        let wanted = [
            1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 4, 0x10, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0,
            0, 0, 0, 0,
        ];
        assert_eq!((bytes.as_slice(), structure.bytes()), (&wanted[..], 32));
    }
}
