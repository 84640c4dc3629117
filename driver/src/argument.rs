//! An argument of a launch, untyped.

use ptx_gen::{Kind, Scalar, ShapeArg, Ty};

use crate::element::{Element, ElementType, as_bytes};
use crate::parameter::ParameterType;
use crate::{Region, TensorMap, View};

/// An argument at launch, untyped.
///
/// An example is at [`Launch`](crate::Launch).
#[derive(Clone, Debug)]
pub enum HostArg {
    /// A buffer.
    Buffer(Region),
    /// A number: its type, and its bits, zero-extended.
    Scalar(Kind, u64),
    /// Anything else by value.
    Value(HostValue),
}

/// A value of any type: its type and its bytes.
///
/// [`HostArg::value`] makes it.
#[derive(Clone, Debug)]
pub struct HostValue {
    ty: ElementType,
    bytes: Box<[u8]>,
    /// Of a tensor map, the elements of its tensor.
    elements: Option<usize>,
}

/// A tensor map as an argument of a kernel of `ptx-gen`, and the elements of its tensor.
///
/// Whoever encoded the map keeps the tensor alive, and orders the launch with other work on it.
#[derive(Clone, Debug)]
pub struct MapArg(HostValue);

impl MapArg {
    /// The map of a tensor of so many elements.
    pub fn new(map: TensorMap, elements: usize) -> Self {
        Self(HostValue { ty: TensorMap::TYPE, bytes: as_bytes(&[map]).into(), elements: Some(elements) })
    }

    /// The elements of the tensor.
    pub(crate) fn elements(&self) -> usize {
        self.0.elements.unwrap_or(0)
    }

    pub(crate) fn value(&self) -> &HostValue {
        &self.0
    }
}

impl HostArg {
    /// A number that kernels of `ptx-gen` take.
    pub fn scalar<T: Scalar>(value: T) -> Self {
        Self::Scalar(<T as Ty>::KIND, value.to_bits64())
    }

    /// Anything by value.
    pub fn value<T: Element>(value: T) -> Self {
        Self::Value(HostValue { ty: T::TYPE, bytes: as_bytes(&[value]).into(), elements: None })
    }

    /// What the launch contract sees of it.
    pub fn shape(&self) -> ShapeArg {
        match self {
            Self::Buffer(region) => ShapeArg::Len(region.bytes() / region.elem().size().max(1)),
            Self::Scalar(_, bits) => ShapeArg::Scalar(*bits),
            // Contracts see buffers, tensors and numbers; nothing of `ptx-gen` takes other values.
            Self::Value(value) => value.elements.map_or(ShapeArg::Scalar(0), ShapeArg::Len),
        }
    }

    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Buffer(region) => format!("a buffer of {} ({region})", region.elem().name()),
            Self::Scalar(kind, _) => format!("a {} value", kind.name()),
            Self::Value(HostValue { ty, .. }) => format!("a {} value of {} bytes", ty.name(), ty.size()),
        }
    }

    pub(crate) fn fits(&self, wanted: ParameterType) -> bool {
        match (wanted, self) {
            (ParameterType::Buffer(elem, _), Self::Buffer(region)) => region.elem() == elem,
            (ParameterType::Value(ty), Self::Scalar(kind, _)) => ty.kind() == Some(*kind),
            (ParameterType::Value(wanted), Self::Value(value)) => value.ty == wanted,
            _ => false,
        }
    }
}

impl HostValue {
    /// Its bytes, in words of 64 bits.
    pub(crate) fn words(&self) -> impl Iterator<Item = u64> {
        self.bytes.chunks(8).map(|bytes| {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            u64::from_le_bytes(word)
        })
    }
}

impl<T> From<&View<T>> for HostArg {
    fn from(view: &View<T>) -> Self {
        Self::Buffer(view.region().clone())
    }
}

impl<T> From<View<T>> for HostArg {
    fn from(view: View<T>) -> Self {
        Self::from(&view)
    }
}
