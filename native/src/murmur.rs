//! The hash that chooses the partition of a key, as `stele.producer.partitioner` computes it.

const SEED: u32 = 0x9747_b28c;
const M: u32 = 0x5bd1_e995;

pub fn murmur2(key: &[u8]) -> u32 {
    let mut value = SEED ^ key.len() as u32;
    let mut words = key.chunks_exact(4);
    for word in &mut words {
        let word = u32::from_le_bytes([word[0], word[1], word[2], word[3]]).wrapping_mul(M);
        value = value.wrapping_mul(M) ^ (word ^ word >> 24).wrapping_mul(M);
    }
    let tail = words.remainder();
    if !tail.is_empty() {
        for (place, byte) in tail.iter().enumerate() {
            value ^= u32::from(*byte) << (8 * place);
        }
        value = value.wrapping_mul(M);
    }
    value = (value ^ value >> 13).wrapping_mul(M);
    value ^ value >> 15
}

pub fn partition_of(key: &[u8], partition_count: u32) -> Option<u32> {
    (murmur2(key) & 0x7fff_ffff).checked_rem(partition_count)
}
