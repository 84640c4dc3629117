//! The schemas of prompts, which are texts, token ids, or lists of them.

use utoipa::openapi::schema::{AnyOfBuilder, ArrayBuilder, ObjectBuilder, Type};
use utoipa::openapi::{RefOr, Schema};

/// Returns the schema of a prompt in OpenAI's protocol: a text, a list of token ids, or a list of
/// texts and lists of token ids.
pub fn prompts_schema() -> RefOr<Schema> {
    AnyOfBuilder::new()
        .item(text())
        .item(ids())
        .item(
            ArrayBuilder::new()
                .items(AnyOfBuilder::new().item(text()).item(ids()))
                .min_items(Some(1)),
        )
        .into()
}

/// Returns the schema of a prompt in llama.cpp's protocol: in addition, a list may mix texts and
/// token ids, and a prompt may be an object with `prompt_string`.
pub fn text_prompt_schema() -> RefOr<Schema> {
    let object = ObjectBuilder::new()
        .schema_type(Type::Object)
        .property("prompt_string", text())
        .required("prompt_string")
        .build();
    let mixed = ArrayBuilder::new()
        .items(AnyOfBuilder::new().item(text()).item(id()))
        .build();
    AnyOfBuilder::new()
        .item(text())
        .item(object.clone())
        .item(mixed.clone())
        .item(
            ArrayBuilder::new()
                .items(AnyOfBuilder::new().item(text()).item(object).item(mixed))
                .min_items(Some(1)),
        )
        .into()
}

fn text() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String)
}

fn id() -> ObjectBuilder {
    ObjectBuilder::new()
        .schema_type(Type::Integer)
        .minimum(Some(0))
        .maximum(Some(u32::MAX))
}

fn ids() -> ArrayBuilder {
    ArrayBuilder::new().items(id()).min_items(Some(1))
}
