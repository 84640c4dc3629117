//! A lane's view of blocks, rows and tiles of any format.

pub(crate) mod codes;
pub(crate) mod fragment;
pub(crate) mod multiply;
pub(crate) mod name;
pub(crate) mod pack;
pub(crate) mod row;
