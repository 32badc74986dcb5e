//! What stands before key and value of a record.

use crate::varint::{from_zigzag, Cursor};

pub struct Head {
    pub end: usize,  // of the record
    pub rest: usize, // where the offset delta begins
    pub timestamp_delta_ms: i64,
    pub offset_delta: i64,
}

impl Head {
    /// None: there is no sound one here. The record ends within the data.
    pub fn read(cursor: &mut Cursor) -> Option<Self> {
        let size = cursor.varint64()?;
        let end = cursor.position.checked_add((size >> 1) as usize)?;
        if size & 1 == 1 || end > cursor.data.len() {
            return None;
        }
        cursor.byte()?; // attributes: none are defined
        let timestamp_delta_ms = from_zigzag(cursor.varint64()?);
        let rest = cursor.position;
        let offset_delta = from_zigzag(cursor.varint64()?);
        Some(Self {
            end,
            rest,
            timestamp_delta_ms,
            offset_delta,
        })
    }
}
