//! The derive macro `#[derive(Element)]` for `warpwright-driver`, which re-exports it under its
//! feature `derive`.
//!
//! It implements the trait for a struct of plain bytes, which can then be stored in device memory:
//!
//! ```
//! use warpwright_driver::memory::{Element, ElementType};
//!
//! #[derive(Clone, Copy, Element)]
//! #[repr(C)]
//! struct Particle {
//!     position: [f32; 3],
//!     mass: f32,
//! }
//!
//! #[derive(Clone, Copy, Element)]
//! #[repr(transparent)]
//! struct Index(u32);
//!
//! assert_eq!((Particle::TYPE.name(), Particle::TYPE.size()), ("Particle", 16));
//! assert_eq!(Index::zeros(2)[1].0, 0);
//! ```
//!
//! The macro takes over the `unsafe` promises of the trait. Each of them is checked at compile
//! time. The layout must be `#[repr(C)]` or `#[repr(transparent)]`, because Rust may reorder the
//! fields of other structs:
//!
//! ```compile_fail
//! # use warpwright_driver::memory::Element;
//! #[derive(Clone, Copy, Element)]
//! struct Particle {
//!     position: [f32; 3],
//!     mass: f32,
//! }
//! ```
//!
//! The struct must not contain padding, because its bytes would be uninitialized:
//!
//! ```compile_fail,E0080
//! # use warpwright_driver::memory::Element;
//! #[derive(Clone, Copy, Element)]
//! #[repr(C)]
//! struct Padded {
//!     key: u8,
//!     value: u32,
//! }
//! ```
//!
//! ```compile_fail,E0080
//! # use warpwright_driver::memory::Element;
//! #[derive(Clone, Copy, Element)]
//! #[repr(C, align(16))]
//! struct Aligned {
//!     value: [f32; 3],
//! }
//! ```
//!
//! Every field must be an element, so that every bit pattern is valid and none is a host address:
//!
//! ```compile_fail,E0277
//! # use warpwright_driver::memory::Element;
//! #[derive(Clone, Copy, Element)]
//! #[repr(C)]
//! struct Flagged {
//!     is_on: bool,
//! }
//! ```
//!
//! ```compile_fail,E0277
//! # use warpwright_driver::memory::Element;
//! #[derive(Clone, Copy, Element)]
//! #[repr(C)]
//! struct Named {
//!     name: &'static u64,
//! }
//! ```
//!
//! Only structs with at least one field and without generic parameters are supported:
//!
//! ```compile_fail
//! # use warpwright_driver::memory::Element;
//! #[derive(Clone, Copy, Element)]
//! #[repr(C)]
//! union Either {
//!     a: u32,
//!     b: f32,
//! }
//! ```
//!
//! ```compile_fail
//! # use warpwright_driver::memory::Element;
//! #[derive(Clone, Copy, Element)]
//! #[repr(C)]
//! struct Pair<T> {
//!     both: [T; 2],
//! }
//! ```
//!
//! ```compile_fail
//! # use warpwright_driver::memory::Element;
//! #[derive(Clone, Copy, Element)]
//! #[repr(C)]
//! struct Nothing;
//! ```
//!
//! An element is `Copy`, because it is copied as bytes:
//!
//! ```compile_fail,E0277
//! # use warpwright_driver::memory::Element;
//! #[derive(Element)]
//! #[repr(C)]
//! struct Owned {
//!     value: u32,
//! }
//! ```

use proc_macro2::TokenStream;
use quote::quote;
use syn::spanned::Spanned;
use syn::{Attribute, Data, DeriveInput, Error, Fields, Type};

/// Implements `warpwright_driver::memory::Element` for a struct of elements without padding.
///
/// See the [crate page](crate) for the requirements.
#[proc_macro_derive(Element)]
pub fn derive_element(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let expanded = syn::parse(input).and_then(|input| element(&input));
    expanded.unwrap_or_else(Error::into_compile_error).into()
}

fn element(input: &DeriveInput) -> Result<TokenStream, Error> {
    let name = &input.ident;
    let types = field_types(input)?;
    if !input.generics.params.is_empty() {
        let text =
            "an element must not have generic parameters: implement the trait for a concrete type";
        return Err(Error::new(input.generics.span(), text));
    }

    if !input.attrs.iter().any(has_layout) {
        let text = "an element must have a fixed layout: add #[repr(C)] or #[repr(transparent)]";
        return Err(Error::new(name.span(), text));
    }

    let padding = format!(
        "{name} has padding, whose bytes are uninitialized: add fields for it, or put the larger fields first"
    );
    let text = name.to_string();
    Ok(quote! {
        // SAFETY: the assertion below compiles only if every field is an element and there is no
        // padding.
        #[allow(unsafe_code)]
        unsafe impl ::warpwright_driver::memory::Element for #name {
            const TYPE: ::warpwright_driver::memory::ElementType = ::warpwright_driver::memory::ElementType::new::<Self>(#text);
        }

        const _: () = {
            const fn bytes<T: ::warpwright_driver::memory::Element>() -> usize {
                ::core::mem::size_of::<T>()
            }
            assert!(::core::mem::size_of::<#name>() == 0 #(+ bytes::<#types>())*, #padding);
        };
    })
}

/// Returns the types of the fields of a struct with at least one field.
fn field_types(input: &DeriveInput) -> Result<Vec<&Type>, Error> {
    let Data::Struct(data) = &input.data else {
        return Err(Error::new(
            input.ident.span(),
            "only a struct can be an element",
        ));
    };

    let fields = match &data.fields {
        Fields::Named(fields) => &fields.named,
        Fields::Unnamed(fields) => &fields.unnamed,
        Fields::Unit => return Err(without_fields(input)),
    };
    if fields.is_empty() {
        return Err(without_fields(input));
    }

    Ok(fields.iter().map(|field| &field.ty).collect())
}

fn without_fields(input: &DeriveInput) -> Error {
    Error::new(
        input.ident.span(),
        "an element must have at least one field",
    )
}

/// Returns true if an attribute fixes the layout.
fn has_layout(attribute: &Attribute) -> bool {
    let mut found = false;
    if attribute.path().is_ident("repr") {
        let _ = attribute.parse_nested_meta(|meta| {
            found |= meta.path.is_ident("C") || meta.path.is_ident("transparent");
            // An argument such as the one of `align` is skipped. Parsing would fail otherwise.
            let _ = meta.input.parse::<Option<proc_macro2::Group>>();
            Ok(())
        });
    }
    found
}

#[cfg(test)]
mod tests {
    /// Returns the error for a type, if there is one.
    fn refusal(text: &str) -> Option<String> {
        super::element(&syn::parse_str(text).unwrap())
            .err()
            .map(|error| error.to_string())
    }

    #[test]
    fn what_is_no_element_is_told_why() {
        let layout = "an element must have a fixed layout: add #[repr(C)] or #[repr(transparent)]";
        let parameters =
            "an element must not have generic parameters: implement the trait for a concrete type";
        let fields = "an element must have at least one field";
        for (text, wanted) in [
            ("struct A { a: u32 }", Some(layout)),
            ("#[repr(align(8))] struct A { a: u32 }", Some(layout)),
            ("#[repr(C)] struct A<T> { a: T }", Some(parameters)),
            ("#[repr(C)] struct A<'a> { a: &'a u32 }", Some(parameters)),
            ("#[repr(C)] struct A;", Some(fields)),
            ("#[repr(C)] struct A {}", Some(fields)),
            ("#[repr(C)] struct A();", Some(fields)),
            (
                "#[repr(u8)] enum A { B }",
                Some("only a struct can be an element"),
            ),
            (
                "#[repr(C)] union A { a: u32 }",
                Some("only a struct can be an element"),
            ),
            ("#[repr(C)] struct A { a: u32 }", None),
            ("#[repr(align(8), C)] struct A { a: u64 }", None),
            ("#[repr(transparent)] struct A(u32);", None),
        ] {
            assert_eq!(refusal(text).as_deref(), wanted, "{text}");
        }
    }
}
