//! Records as Python objects, as `stele.wire.record` and `stele.wire.consumed` make them.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple, PyType};

use crate::head::Head;
use crate::varint::Cursor;

/// The bounds of a batch that its records count from.
pub struct Base {
    pub offset: i64,
    pub timestamp_ms: i64,
    pub append_time_ms: Option<i64>, // of all records, instead of their own
}

impl Base {
    /// The offset and the time of a record. None: they take more than 64 bits.
    fn place_of(&self, head: &Head) -> Option<(i64, i64)> {
        let own_ms = self.timestamp_ms.checked_add(head.timestamp_delta_ms)?;
        let offset = self.offset.checked_add(head.offset_delta)?;
        Some((offset, self.append_time_ms.unwrap_or(own_ms)))
    }
}

/// What all records of a consumer's batch have in common: topic, partition, the type of their
/// timestamps, leader epoch.
pub type Source<'py> = (
    Bound<'py, PyAny>,
    Bound<'py, PyAny>,
    Bound<'py, PyAny>,
    Bound<'py, PyAny>,
);

/// Makes records of a NamedTuple's type: `Record`, or with a source `ConsumerRecord`.
pub struct Maker<'py> {
    record: Bound<'py, PyType>,
    source: Option<Source<'py>>,
    new: Bound<'py, PyAny>, // tuple.__new__
    no_headers: Bound<'py, PyTuple>,
}

impl<'py> Maker<'py> {
    pub fn of(record: Bound<'py, PyType>, source: Option<Source<'py>>) -> PyResult<Self> {
        let py = record.py();
        let new = py.get_type::<PyTuple>().getattr("__new__")?;
        Ok(Self {
            record,
            source,
            new,
            no_headers: PyTuple::empty(py),
        })
    }

    /// The records of a body. None: it is not sound, and the reference says why.
    pub fn records(
        &self,
        data: &[u8],
        count: i64,
        base: &Base,
    ) -> PyResult<Option<Bound<'py, PyList>>> {
        let records = PyList::empty(self.record.py());
        let mut cursor = Cursor { data, position: 0 };
        for _ in 0..count {
            match self.record(&mut cursor, base)? {
                Some(record) => records.append(record)?,
                None => return Ok(None),
            }
        }
        Ok((cursor.position == data.len()).then_some(records))
    }

    fn record(&self, cursor: &mut Cursor, base: &Base) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(head) = Head::read(cursor) else {
            return Ok(None);
        };
        let Some((offset, timestamp_ms)) = base.place_of(&head) else {
            return Ok(None);
        };
        let Some(key) = self.bytes(cursor) else {
            return Ok(None);
        };
        let Some(value) = self.bytes(cursor) else {
            return Ok(None);
        };
        let Some(headers) = self.headers(cursor)? else {
            return Ok(None);
        };
        if cursor.position != head.end {
            return Ok(None);
        }
        let record = match &self.source {
            None => {
                let fields = (offset, timestamp_ms, key, value, headers);
                self.new.call1((&self.record, fields))
            }
            Some((topic, partition, kind, epoch)) => {
                let fields = (
                    topic,
                    partition,
                    offset,
                    timestamp_ms,
                    kind,
                    key,
                    value,
                    headers,
                    epoch,
                );
                self.new.call1((&self.record, fields))
            }
        };
        record.map(Some)
    }

    fn bytes(&self, cursor: &mut Cursor) -> Option<Option<Bound<'py, PyBytes>>> {
        let length = cursor.varint64()?;
        let field = cursor.field(length)?;
        Some(field.map(|field| PyBytes::new(self.record.py(), field)))
    }

    fn headers(&self, cursor: &mut Cursor) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let Some(count) = cursor.varint64() else {
            return Ok(None);
        };
        if count == 0 {
            return Ok(Some(self.no_headers.clone()));
        }
        let left = cursor.data.len().saturating_sub(cursor.position) as u64;
        if count & 1 == 1 || count >> 1 > left {
            return Ok(None);
        }
        let mut headers = Vec::new();
        for _ in 0..count >> 1 {
            let Some(name) = self.name(cursor) else {
                return Ok(None);
            };
            let Some(value) = self.bytes(cursor) else {
                return Ok(None);
            };
            headers.push((name, value));
        }
        PyTuple::new(self.record.py(), headers).map(Some)
    }

    fn name(&self, cursor: &mut Cursor) -> Option<Bound<'py, PyString>> {
        let length = cursor.varint64()?;
        let name = cursor.field(length)??; // it may not be null
        Some(PyString::new(
            self.record.py(),
            std::str::from_utf8(name).ok()?,
        ))
    }
}
