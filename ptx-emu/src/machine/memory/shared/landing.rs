//! Copies that land in shared memory: their words are stored, and their shadow records the write.

use crate::machine::state::block::Block;
use crate::module::address_space::SHARED_BASE;
use crate::module::code::asynchronous::Reduction;
use crate::sanitize::race::shared::shared_shadow::CopyWriter;

/// Stores the words of a copy that lands. The address was checked.
pub(crate) fn land(
    block: &mut Block<'_, '_>,
    address: u32,
    values: impl Iterator<Item = u32>,
    by: CopyWriter,
    pc: u32,
) {
    let count = block.shared.store(address, values);
    block.shadow.land(address, count, by, pc);
}

/// Combines the words of a reduction that lands with those of the memory, as a strong write of an
/// agent. The address was checked.
pub(crate) fn reduce(
    block: &mut Block<'_, '_>,
    address: u32,
    words: &[u32],
    by: Reduction,
    agent: usize,
    pc: u32,
) {
    let value = words
        .iter()
        .rev()
        .fold(0, |all, word| all << 32 | u64::from(*word));
    let old = block
        .shared
        .read((address - SHARED_BASE) as usize, by.bytes);
    land_strong(block, address, (by.f)(old, value, 0), by.bytes, agent, pc);
}

/// Stores a value of one or two words as a strong write of an agent. The address was checked.
pub(crate) fn land_strong(
    block: &mut Block<'_, '_>,
    address: u32,
    value: u64,
    bytes: u32,
    agent: usize,
    pc: u32,
) {
    let words = [value as u32, (value >> 32) as u32];
    let count = bytes as usize / 4;
    block.shared.store(address, words.into_iter().take(count));
    block.shadow.land_strong(address, count, agent, pc);
}
