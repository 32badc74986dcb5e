//! Where the records of a batch begin, and what decides about them in a compaction, as
//! `storage.compaction.stored_records` finds it.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple, PyType};

use crate::head::Head;
use crate::varint::{Cursor, NULL};

/// The places and fields of one record.
pub struct Stored<'a> {
    pub start: usize,
    pub head: Head,
    pub key: Option<&'a [u8]>,
    pub is_tombstone: bool,
}

/// Records of the type `StoredRecord`, a NamedTuple. None: the body is not sound, and the reference
/// says why.
pub fn records<'py>(
    data: &[u8],
    count: i64,
    record: &Bound<'py, PyType>,
) -> PyResult<Option<Bound<'py, PyList>>> {
    let py = record.py();
    let new = py.get_type::<PyTuple>().getattr("__new__")?;
    let records = PyList::empty(py);
    let mut position = 0;
    for _ in 0..count {
        let Some(stored) = read(data, position) else {
            return Ok(None);
        };
        let head = &stored.head;
        position = head.end;
        let fields = (
            stored.start,
            head.end,
            head.rest,
            head.timestamp_delta_ms,
            head.offset_delta,
            stored.key.map(|key| PyBytes::new(py, key)),
            stored.is_tombstone,
        );
        records.append(new.call1((record, fields))?)?;
    }
    Ok((position == data.len()).then_some(records))
}

pub fn read(data: &[u8], start: usize) -> Option<Stored<'_>> {
    let mut cursor = Cursor {
        data,
        position: start,
    };
    let head = Head::read(&mut cursor)?;
    let length = cursor.varint64()?;
    let key = cursor.field(length)?;
    let is_tombstone = u64::from(*data.get(cursor.position)?) == NULL;
    (cursor.position < head.end).then_some(Stored {
        start,
        head,
        key,
        is_tombstone,
    })
}
