//! `warpwright pull`: downloads a model from the Hugging Face hub.

use crate::failure::Failure;
use crate::hub::{self, HubReference};
use warpwright_emu::terminal::print;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Model on the hub: hf:ORG/REPO, hf:ORG/REPO:FILE or hf:ORG/REPO:QUANT
    ///
    /// Without FILE or QUANT, the Q4_K_M file is taken. A repository without GGUF files is
    /// downloaded as a folder in safetensors. An interrupted download is continued by the next one.
    ///
    /// Files are kept in the hub's own cache folder. These environment variables are read:
    /// HF_TOKEN, HF_ENDPOINT, HF_HOME, HF_HUB_CACHE, HF_HUB_OFFLINE and HF_HUB_DOWNLOAD_TIMEOUT.
    #[arg(value_name = "hf:ORG/REPO")]
    model: HubReference,
}

/// Downloads the model and prints its path to stdout. All other output goes to stderr, so scripts
/// can use the path.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let path = hub::pull(&args.model)?;
    Ok(print(&path.display())?)
}
