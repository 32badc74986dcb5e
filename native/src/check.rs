//! The check of produced records, as `stele.wire.record_check` does it.

use crate::varint::{from_zigzag, Cursor, NULL};

/// A record with more headers gets the closer look, which works in slices.
const HEADERS_AT_ONCE: u64 = 50;

/// What a topic takes. Times are in milliseconds relative to the base timestamp of the batch.
pub struct Rules {
    pub oldest_ms: i128,
    pub newest_ms: i128,
    pub keys_required: bool,
}

/// How far the check came.
pub struct Progress {
    pub number: u64,
    pub position: usize,
    pub newest_ms: i128,
}

/// Skips sound records up to number `stop`. Ends at the first that is not obviously sound.
pub fn whole_records(data: &[u8], from: Progress, stop: u64, rules: &Rules) -> Progress {
    let mut progress = from;
    while progress.number < stop {
        match whole_record(data, &mut progress, rules) {
            Some(end) => {
                progress.position = end;
                progress.number += 1;
            }
            None => break,
        }
    }
    progress
}

/// The position after the record, if it is sound. Notes its time in any case, as soon as it is
/// read.
fn whole_record(data: &[u8], progress: &mut Progress, rules: &Rules) -> Option<usize> {
    let mut cursor = Cursor {
        data,
        position: progress.position,
    };
    let size = cursor.varint32()?;
    let end = cursor.position.checked_add((size >> 1) as usize)?;
    if size & 1 == 1 || end > data.len() {
        return None;
    }
    if cursor.byte()? != 0 {
        return None; // no attributes are defined
    }
    let time_ms = i128::from(from_zigzag(cursor.varint64()?));
    if time_ms < rules.oldest_ms || rules.newest_ms < time_ms {
        return None;
    }
    progress.newest_ms = progress.newest_ms.max(time_ms);
    if cursor.varint32()? != progress.number * 2 {
        return None; // zigzag doubles what is not negative
    }
    skip_field(&mut cursor, rules.keys_required)?;
    skip_field(&mut cursor, false)?;
    skip_headers(&mut cursor)?;
    (cursor.position == end).then_some(end)
}

/// Skips a key or a value. It may end behind the record, and then the record is not sound.
fn skip_field(cursor: &mut Cursor, required: bool) -> Option<()> {
    let length = cursor.varint32()?;
    if length & 1 == 0 {
        cursor.skip(length >> 1);
        return Some(());
    }
    (length == NULL && !required).then_some(())
}

fn skip_headers(cursor: &mut Cursor) -> Option<()> {
    let count = cursor.varint32()?;
    if count & 1 == 1 || count >> 1 > HEADERS_AT_ONCE {
        return None;
    }
    for _ in 0..count >> 1 {
        let length = cursor.varint32()?;
        let name = cursor.field(length)??; // it may not be null
        std::str::from_utf8(name).ok()?;
        skip_field(cursor, false)?;
    }
    Some(())
}
