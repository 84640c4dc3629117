//! `#[derive(Element)]`, the feature `derive` of `warpwright-driver`: structs of plain numbers in device memory.
//!
//! ```
//! use warpwright_driver::{Element, ElementType};
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
//! It stands for the promises of the trait, each of which is checked when the program compiles. The layout is that of C,
//! not one that Rust chooses:
//!
//! ```compile_fail
//! # use warpwright_driver::Element;
//! #[derive(Clone, Copy, Element)]
//! struct Particle {
//!     position: [f32; 3],
//!     mass: f32,
//! }
//! ```
//!
//! There is no padding, whose bytes nobody wrote:
//!
//! ```compile_fail,E0080
//! # use warpwright_driver::Element;
//! #[derive(Clone, Copy, Element)]
//! #[repr(C)]
//! struct Padded {
//!     key: u8,
//!     value: u32,
//! }
//! ```
//!
//! ```compile_fail,E0080
//! # use warpwright_driver::Element;
//! #[derive(Clone, Copy, Element)]
//! #[repr(C, align(16))]
//! struct Aligned {
//!     value: [f32; 3],
//! }
//! ```
//!
//! Every field is an element, so that every pattern of bits is a value and none is an address of the host:
//!
//! ```compile_fail,E0277
//! # use warpwright_driver::Element;
//! #[derive(Clone, Copy, Element)]
//! #[repr(C)]
//! struct Flagged {
//!     is_on: bool,
//! }
//! ```
//!
//! ```compile_fail,E0277
//! # use warpwright_driver::Element;
//! #[derive(Clone, Copy, Element)]
//! #[repr(C)]
//! struct Named {
//!     name: &'static u64,
//! }
//! ```
//!
//! It is a struct, without parameters, of at least one field:
//!
//! ```compile_fail
//! # use warpwright_driver::Element;
//! #[derive(Clone, Copy, Element)]
//! #[repr(C)]
//! union Either {
//!     a: u32,
//!     b: f32,
//! }
//! ```
//!
//! ```compile_fail
//! # use warpwright_driver::Element;
//! #[derive(Clone, Copy, Element)]
//! #[repr(C)]
//! struct Pair<T> {
//!     both: [T; 2],
//! }
//! ```
//!
//! ```compile_fail
//! # use warpwright_driver::Element;
//! #[derive(Clone, Copy, Element)]
//! #[repr(C)]
//! struct Nothing;
//! ```
//!
//! And it is copied as bytes:
//!
//! ```compile_fail,E0277
//! # use warpwright_driver::Element;
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

/// Implements `warpwright_driver::Element` for a struct of elements, without padding. The [crate] says what it
/// checks.
#[proc_macro_derive(Element)]
pub fn derive_element(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let expanded = syn::parse(input).and_then(|input| element(&input));
    expanded.unwrap_or_else(Error::into_compile_error).into()
}

fn element(input: &DeriveInput) -> Result<TokenStream, Error> {
    let (name, types) = (&input.ident, field_types(input)?);
    if !input.generics.params.is_empty() {
        let text = "an element has no parameters: derive it for a type with those filled in";
        return Err(Error::new(input.generics.span(), text));
    }
    if !input.attrs.iter().any(has_layout) {
        let text = "an element has the layout of C: add #[repr(C)], or #[repr(transparent)]";
        return Err(Error::new(name.span(), text));
    }
    let padding = format!(
        "{name} has padding, whose bytes nobody writes: add fields for it, or put the larger fields first"
    );
    let text = name.to_string();
    Ok(quote! {
        // SAFETY: every field is an element, and there is no padding, which the assertion below makes sure of.
        #[allow(unsafe_code)]
        unsafe impl ::warpwright_driver::Element for #name {
            const TYPE: ::warpwright_driver::ElementType = ::warpwright_driver::ElementType::of::<Self>(#text);
        }

        const _: () = {
            const fn bytes<T: ::warpwright_driver::Element>() -> usize {
                ::core::mem::size_of::<T>()
            }
            assert!(::core::mem::size_of::<#name>() == 0 #(+ bytes::<#types>())*, #padding);
        };
    })
}

/// The types of the fields of a struct, at least one.
fn field_types(input: &DeriveInput) -> Result<Vec<&Type>, Error> {
    let Data::Struct(data) = &input.data else {
        return Err(Error::new(
            input.ident.span(),
            "only a struct is an element",
        ));
    };
    let fields = match &data.fields {
        Fields::Named(fields) => &fields.named,
        Fields::Unnamed(fields) => &fields.unnamed,
        Fields::Unit => return Err(Error::new(input.ident.span(), "an element has fields")),
    };
    if fields.is_empty() {
        return Err(Error::new(input.ident.span(), "an element has fields"));
    }
    Ok(fields.iter().map(|field| &field.ty).collect())
}

/// Whether an attribute fixes the layout.
fn has_layout(attribute: &Attribute) -> bool {
    let mut found = false;
    if attribute.path().is_ident("repr") {
        let _ = attribute.parse_nested_meta(|meta| {
            found |= meta.path.is_ident("C") || meta.path.is_ident("transparent");
            // An argument, such as that of `align`, is not looked at.
            let _ = meta.input.parse::<Option<proc_macro2::Group>>();
            Ok(())
        });
    }
    found
}

#[cfg(test)]
mod tests {
    /// What is said of a type.
    fn refusal(text: &str) -> Option<String> {
        super::element(&syn::parse_str(text).unwrap())
            .err()
            .map(|error| error.to_string())
    }

    #[test]
    fn what_is_no_element_is_told_why() {
        let layout = "an element has the layout of C: add #[repr(C)], or #[repr(transparent)]";
        let parameters = "an element has no parameters: derive it for a type with those filled in";
        for (text, wanted) in [
            ("struct A { a: u32 }", Some(layout)),
            ("#[repr(align(8))] struct A { a: u32 }", Some(layout)),
            ("#[repr(C)] struct A<T> { a: T }", Some(parameters)),
            ("#[repr(C)] struct A<'a> { a: &'a u32 }", Some(parameters)),
            ("#[repr(C)] struct A;", Some("an element has fields")),
            ("#[repr(C)] struct A {}", Some("an element has fields")),
            ("#[repr(C)] struct A();", Some("an element has fields")),
            (
                "#[repr(u8)] enum A { B }",
                Some("only a struct is an element"),
            ),
            (
                "#[repr(C)] union A { a: u32 }",
                Some("only a struct is an element"),
            ),
            ("#[repr(C)] struct A { a: u32 }", None),
            ("#[repr(align(8), C)] struct A { a: u64 }", None),
            ("#[repr(transparent)] struct A(u32);", None),
        ] {
            assert_eq!(refusal(text).as_deref(), wanted, "{text}");
        }
    }
}
