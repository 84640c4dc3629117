//! Steps of a batch, and the work between them.
//!
//! | file | contents |
//! |---|---|
//! | `row_class` | the origin of tokens, which selects their kernels if all steps must round alike |
//! | `stepped` | steps of prompts, single tokens and grammars |
//! | `constrained` | sequences that follow grammars |
//! | `scored` | log-probabilities of known tokens |
//! | `embedded` | embeddings of texts |

pub(super) mod constrained;
mod embedded;
pub(super) mod row_class;
mod scored;
pub(super) mod stepped;
