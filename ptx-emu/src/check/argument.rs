//! Buffers and arguments of a check.

use super::element::{Element, ElementType};
use crate::image::{Image, Sampler};
use crate::memory::Memory;
use crate::memory_error::MemoryError;

/// Memory that arguments may point to.
#[derive(Clone, Debug)]
pub struct Buffer {
    /// What findings call it.
    pub name: String,
    /// What the kernel may do with it.
    pub role: Role,
    /// The type of its elements.
    pub element: ElementType,
    /// Number of elements.
    pub count: usize,
    /// What it holds before the launch; nothing that anybody has written, without.
    pub contents: Option<Vec<u8>>,
    /// What it must hold afterwards.
    pub expected: Option<Expected>,
    /// The texture or surface that it is to the kernel, whose handle is the argument then.
    pub view: Option<View>,
}

/// A texture or surface over a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// The image, from the buffer's beginning on, whatever its address says.
    pub image: Image,
    /// How a texture is read; a surface has none.
    pub sampler: Option<Sampler>,
}

/// What a kernel may do with a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It reads it. A buffer that is not the same afterwards is a finding.
    In,
    /// It writes it. What it holds before is not initialised.
    Out,
    /// Both.
    InOut,
}

/// What a buffer must hold after the launch.
#[derive(Clone, Debug)]
pub struct Expected {
    /// As many elements as the buffer has, of its type.
    pub bytes: Vec<u8>,
    /// How far off an element may be: this, times the larger of 1 and the magnitude of what is expected.
    pub tolerance: f64,
}

impl Buffer {
    /// A buffer of these elements.
    pub fn filled<T: Element>(name: &str, role: Role, values: &[T]) -> Buffer {
        let contents = values.iter().flat_map(|value| value.encode()).collect();
        Buffer {
            contents: Some(contents),
            role,
            ..Buffer::empty(name, T::TYPE, values.len())
        }
    }

    /// A buffer for what a kernel writes.
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

    /// Its size.
    pub fn bytes(&self) -> usize {
        self.count.saturating_mul(self.element.bytes())
    }

    /// Allocates and fills it.
    pub(super) fn place(&self, memory: &Memory) -> Result<u64, MemoryError> {
        let address = memory.alloc(self.bytes() as u64)?;
        memory.set_label(address, &self.name);
        if let Some(contents) = &self.contents {
            memory.write(address, contents)?;
        }
        Ok(address)
    }

    /// What an argument that names it is: the handle of its texture or surface, or its address.
    pub(super) fn handle(&self, memory: &Memory, address: u64) -> Result<u64, String> {
        let Some(view) = &self.view else {
            return Ok(address);
        };
        let (has, needs) = (self.bytes() as u64, view.image.bytes());
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

    /// What it holds, and how many bytes nobody has written.
    pub(super) fn take(
        &self,
        memory: &Memory,
        address: u64,
    ) -> Result<(Vec<u8>, u64), MemoryError> {
        let (size, mut bytes) = (self.bytes(), Vec::new());
        bytes
            .try_reserve_exact(size)
            .map_err(|_| memory.full(size as u64))?;
        bytes.resize(size, 0);
        memory.read(address, &mut bytes)?;
        let unwritten = memory.count_uninitialised(address, size as u64)?;
        Ok((bytes, unwritten))
    }
}

/// The bytes of an argument, with the addresses of buffers among them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Argument(pub Vec<Field>);

/// A part of an argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Field {
    /// These bytes.
    Bytes(Vec<u8>),
    /// The address of a buffer, or the handle of its texture or surface.
    Pointer {
        /// Its number among the buffers of the check.
        buffer: usize,
        /// Bytes from its beginning.
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
    /// The address of a byte of a buffer.
    pub fn pointer(buffer: usize, offset: u64) -> Argument {
        Argument(vec![Field::Pointer { buffer, offset }])
    }

    /// A structure as C lays it out: each member, which is one field, at a multiple of its size, and the whole a multiple
    /// of the largest.
    pub fn structure(members: impl IntoIterator<Item = Argument>) -> Argument {
        let (mut fields, mut at, mut align) = (Vec::new(), 0usize, 1);
        let pad_to = |fields: &mut Vec<Field>, at: &mut usize, align: usize| {
            let end = at.next_multiple_of(align);
            fields.push(Field::Bytes(vec![0; end - *at]));
            *at = end;
        };
        for field in members.into_iter().flat_map(|member| member.0) {
            let bytes = field.bytes().max(1);
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

    /// Its size.
    pub fn bytes(&self) -> usize {
        self.0.iter().map(Field::bytes).sum()
    }

    /// Appends its bytes.
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

/// A scalar.
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
