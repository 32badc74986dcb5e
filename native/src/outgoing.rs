//! A producer's records on their way into batches: the tuples that `Producer.send_all` takes.

use std::collections::HashMap;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyInt, PyList, PyString, PyTuple};

use crate::murmur::partition_of;
use crate::varint::{put_varint, varint_size};

/// As `stele.wire.record.RECORD_OVERHEAD`.
const RECORD_OVERHEAD: usize = 36;

/// The fields of a record that go into a batch.
struct Outgoing<'py> {
    value: Option<Bound<'py, PyBytes>>,
    key: Option<Bound<'py, PyBytes>>,
    headers: Vec<(Bound<'py, PyString>, Option<Bound<'py, PyBytes>>)>,
    timestamp_ms: Option<i64>,
}

impl<'py> Outgoing<'py> {
    /// None: the record is not plain, and the reference looks at it.
    fn read(record: &Bound<'py, PyTuple>) -> Option<Self> {
        let field = |number| record.get_item(number).ok();
        let time = field(4)?;
        Some(Self {
            value: bytes_or_none(field(1)?)?,
            key: bytes_or_none(field(2)?)?,
            headers: headers_of(&field(3)?)?,
            timestamp_ms: if time.is_none() {
                None
            } else {
                Some(whole_number(&time).filter(|time_ms| *time_ms >= 0)?)
            },
        })
    }

    /// As `stele.wire.record.record_size_bound`.
    fn size_bound(&self) -> usize {
        let headers: usize = self
            .headers
            .iter()
            .map(|(name, value)| 10 + 4 * name.len().unwrap_or(0) + bytes_of(value.as_ref()).len())
            .sum();
        RECORD_OVERHEAD + self.key().len() + self.value().len() + headers
    }

    fn key(&self) -> &[u8] {
        bytes_of(self.key.as_ref())
    }

    fn value(&self) -> &[u8] {
        bytes_of(self.value.as_ref())
    }

    /// None: the name of a header is no UTF-8.
    fn put(&self, body: &mut Vec<u8>, time_delta: i64, delta: i64) -> Option<()> {
        let mut tail = Vec::new();
        put_varint(&mut tail, self.headers.len() as i64);
        for (name, value) in &self.headers {
            put_field(&mut tail, Some(name.to_str().ok()?.as_bytes()));
            put_field(&mut tail, value.as_ref().map(|value| value.as_bytes()));
        }
        let size = 1
            + varint_size(time_delta)
            + varint_size(delta)
            + field_size(self.key.as_ref())
            + field_size(self.value.as_ref())
            + tail.len();
        put_varint(body, size as i64);
        body.push(0); // no attributes are defined
        put_varint(body, time_delta);
        put_varint(body, delta);
        put_field(body, self.key.as_ref().map(|key| key.as_bytes()));
        put_field(body, self.value.as_ref().map(|value| value.as_bytes()));
        body.extend_from_slice(&tail);
        Some(())
    }
}

fn bytes_of<'a>(field: Option<&'a Bound<'_, PyBytes>>) -> &'a [u8] {
    field.map_or(&[], |field| field.as_bytes())
}

fn field_size(field: Option<&Bound<'_, PyBytes>>) -> usize {
    field.map_or(1, |field| {
        let size = field.as_bytes().len();
        varint_size(size as i64) + size
    })
}

fn put_field(out: &mut Vec<u8>, field: Option<&[u8]>) {
    match field {
        Some(field) => {
            put_varint(out, field.len() as i64);
            out.extend_from_slice(field);
        }
        None => put_varint(out, -1),
    }
}

fn bytes_or_none(field: Bound<'_, PyAny>) -> Option<Option<Bound<'_, PyBytes>>> {
    if field.is_none() {
        return Some(None);
    }
    field.cast_into_exact::<PyBytes>().ok().map(Some)
}

fn whole_number(number: &Bound<'_, PyAny>) -> Option<i64> {
    number.cast_exact::<PyInt>().ok()?.extract().ok()
}

type Header<'py> = (Bound<'py, PyString>, Option<Bound<'py, PyBytes>>);

fn headers_of<'py>(headers: &Bound<'py, PyAny>) -> Option<Vec<Header<'py>>> {
    if let Ok(headers) = headers.cast_exact::<PyTuple>() {
        return headers.iter().map(header_of).collect();
    }
    let headers = headers.cast_exact::<PyList>().ok()?;
    headers.iter().map(header_of).collect()
}

fn header_of(header: Bound<'_, PyAny>) -> Option<Header<'_>> {
    let header = header.cast_into_exact::<PyTuple>().ok()?;
    if header.len() != 2 {
        return None;
    }
    let name = header
        .get_item(0)
        .ok()?
        .cast_into_exact::<PyString>()
        .ok()?;
    name.to_str().ok()?; // a lone surrogate has no UTF-8
    Some((name, bytes_or_none(header.get_item(1).ok()?)?))
}

/// The bounds of a run.
pub struct Limits {
    pub field_count: usize, // of a record: topic, value, key, headers, time, partition, and more
    pub partition_count: u32,
    pub room_bytes: usize,
    pub largest_bytes: usize,
    pub keyless_partition: Option<i64>,
    pub keyless_bytes: i64,
    pub longest_key_bytes: usize,
}

/// (number of records, sum of their sizes, those of records without a partition, groups).
pub type Run<'py> = (usize, usize, usize, Bound<'py, PyDict>);

/// See `stele.producer.runs.divide`.
pub fn divide<'py>(
    records: &Bound<'py, PyList>,
    start: usize,
    topic: &Bound<'py, PyString>,
    limits: &Limits,
) -> PyResult<Run<'py>> {
    let py = records.py();
    let groups = PyDict::new(py);
    let mut lists: HashMap<i64, Bound<'py, PyList>> = HashMap::new();
    let (mut count, mut size, mut keyless_size) = (0, 0, 0);
    while let Ok(record) = records.get_item(start + count) {
        let Some((bytes, partition)) = destination(&record, topic, limits) else {
            break;
        };
        if size + bytes > limits.room_bytes {
            break;
        }
        let partition = match partition {
            Some(partition) => partition,
            None => match limits.keyless_partition {
                Some(partition) if (keyless_size as i64) < limits.keyless_bytes => {
                    keyless_size += bytes;
                    partition
                }
                _ => break,
            },
        };
        size += bytes;
        count += 1;
        if let Some(list) = lists.get(&partition) {
            list.append(record)?;
        } else {
            let list = PyList::new(py, [record])?;
            groups.set_item(partition, &list)?;
            lists.insert(partition, list);
        }
    }
    Ok((count, size, keyless_size, groups))
}

/// The size of a record, and its partition if it has its own or a key. None: it is not plain.
fn destination(
    record: &Bound<'_, PyAny>,
    topic: &Bound<'_, PyString>,
    limits: &Limits,
) -> Option<(usize, Option<i64>)> {
    let record = record.cast::<PyTuple>().ok()?;
    if record.len() != limits.field_count {
        return None;
    }
    let own_topic = record.get_item(0).ok()?;
    if !own_topic.is(topic) {
        let own_topic = own_topic.cast_exact::<PyString>().ok()?;
        if own_topic.to_str().ok()? != topic.to_str().ok()? {
            return None;
        }
    }
    let outgoing = Outgoing::read(record)?;
    let size = outgoing.size_bound();
    if size > limits.largest_bytes {
        return None;
    }
    let partition = record.get_item(5).ok()?;
    if !partition.is_none() {
        let partition = whole_number(&partition)?;
        return (0..i64::from(limits.partition_count))
            .contains(&partition)
            .then_some((size, Some(partition)));
    }
    if outgoing.key.is_none() {
        return Some((size, None));
    }
    let key = outgoing.key();
    if key.len() > limits.longest_key_bytes {
        return None;
    }
    let partition = partition_of(key, limits.partition_count)?;
    Some((size, Some(i64::from(partition))))
}

/// What is known of the batch, and the time for records without one.
pub struct Batch {
    pub delta: i64, // of the next record
    pub base_ms: Option<i64>,
    pub room_bytes: i64, // a batch of no records takes one of any size
    pub now_ms: i64,
}

/// (body, number of records, sum of their sizes, the first and the greatest time).
pub type Encoded<'py> = (Bound<'py, PyBytes>, usize, usize, i64, i64);

/// See `stele.wire.record.encode_records`. None: a record is not plain, or
/// the batch has no room.
pub fn encode_records<'py>(
    records: &Bound<'py, PyList>,
    start: usize,
    batch: &Batch,
) -> Option<Encoded<'py>> {
    let mut body = Vec::new();
    let (mut count, mut sizes) = (0, 0);
    let (mut base_ms, mut newest_ms) = (batch.base_ms, i64::MIN);
    while let Ok(record) = records.get_item(start + count) {
        let outgoing = Outgoing::read(record.cast::<PyTuple>().ok()?)?;
        let size = outgoing.size_bound();
        let is_empty = batch.base_ms.is_none() && count == 0;
        if !is_empty && (body.len() + size) as i64 > batch.room_bytes {
            break;
        }
        let time_ms = outgoing.timestamp_ms.unwrap_or(batch.now_ms);
        let first_ms = *base_ms.get_or_insert(time_ms);
        newest_ms = newest_ms.max(time_ms);
        let delta = batch.delta.checked_add(count as i64)?;
        outgoing.put(&mut body, time_ms.checked_sub(first_ms)?, delta)?;
        count += 1;
        sizes += size;
    }
    let body = PyBytes::new(records.py(), &body);
    (count > 0).then_some((body, count, sizes, base_ms?, newest_ms))
}
