//! Digests of keys with their latest offsets, and what a compaction keeps of a batch by them, as
//! `storage.compaction.slots` and `storage.compaction.offset_map` do it.

use std::collections::TryReserveError;

use blake2::digest::consts::U16;
use blake2::{Blake2b, Digest};

use crate::stored::{read, Stored};

/// The two words of a digest, and the offset plus 1; 0 marks an empty slot.
type Slot = [u64; 3];

/// A hash table of a fixed size. The number of slots is a prime, and some of them stay empty.
pub struct Slots {
    slots: Vec<Slot>,
    capacity: u64,
    count: u64,
}

/// What stays of a body.
pub struct Kept {
    pub body: Option<Vec<u8>>, // None: all of it stays
    pub count: usize,
    pub has_tombstone: bool,
    pub greatest_delta_ms: i64,
}

impl Slots {
    pub fn new(number: usize, capacity: u64) -> Result<Self, TryReserveError> {
        let mut slots = Vec::new();
        slots.try_reserve_exact(number)?;
        slots.resize(number, [0; 3]);
        Ok(Self {
            slots,
            capacity,
            count: 0,
        })
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    /// `offset` is plus 1. False: the slots are full and do not have the digest.
    pub fn put(&mut self, low: u64, high: u64, offset: u64) -> bool {
        let Some(at) = self.find(low, high) else {
            return false;
        };
        let Some(slot) = self.slots.get_mut(at) else {
            return false;
        };
        if slot[2] == 0 {
            if self.count >= self.capacity {
                return false;
            }
            self.count += 1;
        }
        *slot = [low, high, offset];
        true
    }

    /// Plus 1. 0: there is none.
    pub fn get(&self, low: u64, high: u64) -> u64 {
        let slot = self.find(low, high).and_then(|at| self.slots.get(at));
        slot.map_or(0, |[_, _, offset]| *offset)
    }

    /// The slot of a digest, or the empty one into which it goes. None: there is neither.
    fn find(&self, low: u64, high: u64) -> Option<usize> {
        let number = self.slots.len() as u64;
        let step = high.checked_rem(number.checked_sub(1)?)? + 1;
        let mut at = low % number;
        for _ in 0..number {
            let slot = self.slots.get(at as usize)?;
            if slot[2] == 0 || (slot[0] == low && slot[1] == high) {
                return Some(at as usize);
            }
            at = (at + step) % number;
        }
        None
    }

    /// Puts the keys of a body. False: the slots became full on the way. None: the body is not
    /// sound, nothing was put, and the reference says why.
    pub fn put_keys(&mut self, data: &[u8], count: i64, base_offset: i64) -> Option<bool> {
        let stored = records(data, count)?;
        let mut places = Vec::with_capacity(stored.len());
        for each in &stored {
            if let Some(key) = each.key {
                let offset = base_offset.checked_add(each.head.offset_delta)?;
                places.push((key, u64::try_from(offset).ok()? + 1));
            }
        }
        for (key, offset) in places {
            let (low, high) = digest(key);
            if !self.put(low, high, offset) {
                return Some(false);
            }
        }
        Some(true)
    }

    /// The records that have a key, and no later record of it here. None: as for `put_keys`.
    pub fn kept_records(
        &self,
        data: &[u8],
        count: i64,
        base_offset: i64,
        drop_tombstones: bool,
    ) -> Option<Kept> {
        let stored = records(data, count)?;
        let mut kept = Vec::with_capacity(stored.len());
        for each in &stored {
            let Some(key) = each.key else { continue };
            let offset = base_offset.checked_add(each.head.offset_delta)?;
            let (low, high) = digest(key);
            let is_latest = i128::from(offset) + 1 >= i128::from(self.get(low, high));
            if is_latest && !(drop_tombstones && each.is_tombstone) {
                kept.push(each);
            }
        }
        let body = if kept.len() == stored.len() {
            None
        } else {
            let size = kept.iter().map(|each| each.head.end - each.start).sum();
            let mut body = Vec::with_capacity(size);
            for each in &kept {
                body.extend_from_slice(data.get(each.start..each.head.end)?);
            }
            Some(body)
        };
        let deltas = kept.iter().map(|each| each.head.timestamp_delta_ms);
        Some(Kept {
            body,
            count: kept.len(),
            has_tombstone: kept.iter().any(|each| each.is_tombstone),
            greatest_delta_ms: deltas.max().unwrap_or(0),
        })
    }
}

fn digest(key: &[u8]) -> (u64, u64) {
    let digest: [u8; 16] = Blake2b::<U16>::digest(key).into();
    let whole = u128::from_le_bytes(digest);
    (whole as u64, (whole >> 64) as u64)
}

/// The records of a body. None: it is not sound.
fn records(data: &[u8], count: i64) -> Option<Vec<Stored<'_>>> {
    let mut found = Vec::new();
    let mut position = 0;
    for _ in 0..count {
        let stored = read(data, position)?;
        position = stored.head.end;
        found.push(stored);
    }
    (position == data.len()).then_some(found)
}
