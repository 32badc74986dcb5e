//! The records of Kafka's batches, at the speed of the machine.
//!
//! Each function does what the Python function of its name does in `stele.wire`, which is the
//! reference. What is not sound is left to the reference: it knows why.

#![forbid(unsafe_code)]

mod check;
mod columns;
mod decode;
mod head;
mod murmur;
mod outgoing;
mod slots;
mod stored;
mod varint;

use pyo3::exceptions::{PyMemoryError, PyOverflowError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple, PyType};

/// Changes with the functions, so that a module that was built before is told from the right one.
const REVISION: u32 = 7;

/// Inputs from here on are worked on without the lock of the interpreter.
const LARGE_BYTES: usize = 64 * 1024;

fn worked<T: Send>(py: Python<'_>, size_bytes: usize, work: impl FnOnce() -> T + Send) -> T {
    if size_bytes < LARGE_BYTES {
        work()
    } else {
        py.detach(work)
    }
}

/// See `stele.wire.record_check.whole_records`.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
fn whole_records(
    py: Python<'_>,
    data: &[u8],
    position: usize,
    number: u64,
    stop: u64,
    oldest_ms: i128,
    newest_allowed_ms: i128,
    keys_required: bool,
    newest_ms: i128,
) -> (u64, usize, i128) {
    let rules = check::Rules {
        oldest_ms,
        newest_ms: newest_allowed_ms,
        keys_required,
    };
    let from = check::Progress {
        number,
        position,
        newest_ms,
    };
    let progress = worked(py, data.len(), || {
        check::whole_records(data, from, stop, &rules)
    });
    (progress.number, progress.position, progress.newest_ms)
}

/// See `stele.wire.record.decode_records`.
#[pyfunction]
fn decode_records<'py>(
    data: &[u8],
    count: i64,
    base_offset: i64,
    base_timestamp_ms: i64,
    append_time_ms: Option<i64>,
    record: Bound<'py, PyType>,
) -> PyResult<Option<Bound<'py, PyList>>> {
    let base = decode::Base {
        offset: base_offset,
        timestamp_ms: base_timestamp_ms,
        append_time_ms,
    };
    decode::Maker::of(record, None)?.records(data, count, &base)
}

/// See `stele.wire.consumed.decode_consumer_records`.
#[pyfunction]
fn decode_consumer_records<'py>(
    data: &[u8],
    count: i64,
    base_offset: i64,
    base_timestamp_ms: i64,
    append_time_ms: Option<i64>,
    record: Bound<'py, PyType>,
    source: decode::Source<'py>,
) -> PyResult<Option<Bound<'py, PyList>>> {
    let base = decode::Base {
        offset: base_offset,
        timestamp_ms: base_timestamp_ms,
        append_time_ms,
    };
    decode::Maker::of(record, Some(source))?.records(data, count, &base)
}

type Buffers<'py> = Bound<'py, PyTuple>;

/// See `stele.column_decoder`: (times, offsets, keys, values, headers). Keys and values are
/// (nulls, validity, offsets, data). Headers are None, or (nulls, validity, offsets, names, values).
#[pyfunction]
fn decode_columns<'py>(
    py: Python<'py>,
    bodies: Vec<Bound<'py, PyBytes>>,
    counts: Vec<usize>,
    with_headers: bool,
) -> PyResult<Option<Buffers<'py>>> {
    let pairs: Vec<(&[u8], usize)> = bodies
        .iter()
        .map(|body| body.as_bytes())
        .zip(counts)
        .collect();
    let Some(columns) = py.detach(|| columns::Columns::of(&pairs, with_headers)) else {
        return Ok(None);
    };
    let bytes = |buffer: &[u8]| PyBytes::new(py, buffer);
    let binary = |column: &columns::Binary| {
        let validity = &column.validity;
        let data = PyBytes::new_with(py, column.size_bytes, |room| {
            worked(py, column.size_bytes, || column.copy_to(room));
            Ok(())
        });
        data.map(|data| {
            (
                validity.nulls,
                bytes(&validity.bits),
                bytes(&column.offsets),
                data,
            )
        })
    };
    let headers = match &columns.headers {
        None => None,
        Some(headers) => Some((
            headers.validity.nulls,
            bytes(&headers.validity.bits),
            bytes(&headers.offsets),
            binary(&headers.names)?,
            binary(&headers.values)?,
        )),
    };
    let found = (
        bytes(&columns.times),
        bytes(&columns.deltas),
        binary(&columns.keys)?,
        binary(&columns.values)?,
        headers,
    );
    found.into_pyobject(py).map(Some)
}

/// See `storage.compaction.stored_records`.
#[pyfunction]
fn stored_records<'py>(
    data: &[u8],
    count: i64,
    record: Bound<'py, PyType>,
) -> PyResult<Option<Bound<'py, PyList>>> {
    stored::records(data, count, &record)
}

/// See `stele.producer.partitioner.murmur2`.
#[pyfunction]
fn murmur2(key: &[u8]) -> u32 {
    murmur::murmur2(key)
}

/// See `stele.producer.runs.divide`.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
fn divide<'py>(
    records: Bound<'py, PyList>,
    start: usize,
    topic: Bound<'py, PyString>,
    field_count: usize,
    partition_count: u32,
    room_bytes: i64,
    largest_bytes: usize,
    keyless_partition: Option<i64>,
    keyless_bytes: i64,
    longest_key_bytes: usize,
) -> PyResult<outgoing::Run<'py>> {
    let limits = outgoing::Limits {
        field_count,
        partition_count,
        room_bytes: usize::try_from(room_bytes).unwrap_or(0),
        largest_bytes,
        keyless_partition,
        keyless_bytes,
        longest_key_bytes,
    };
    outgoing::divide(&records, start, &topic, &limits)
}

/// See `stele.wire.record.encode_records`.
#[pyfunction]
fn encode_records<'py>(
    records: Bound<'py, PyList>,
    start: usize,
    delta: i64,
    base_ms: Option<i64>,
    room_bytes: i64,
    now_ms: i64,
) -> Option<outgoing::Encoded<'py>> {
    let batch = outgoing::Batch {
        delta,
        base_ms,
        room_bytes,
        now_ms,
    };
    outgoing::encode_records(&records, start, &batch)
}

type Kept<'py> = (Bound<'py, PyBytes>, usize, bool, i64);

/// See `storage.compaction.slots`. `put_keys` and `kept_records` are methods of
/// `storage.compaction.offset_map.OffsetMap`.
#[pyclass]
struct Slots {
    slots: slots::Slots,
}

#[pymethods]
impl Slots {
    #[new]
    fn new(number: usize, capacity: u64) -> PyResult<Self> {
        let slots = slots::Slots::new(number, capacity).map_err(|_| PyMemoryError::new_err(()))?;
        Ok(Self { slots })
    }

    #[getter]
    fn count(&self) -> u64 {
        self.slots.count()
    }

    fn put(&mut self, low: u64, high: u64, offset: u64) -> PyResult<bool> {
        let next = offset
            .checked_add(1)
            .ok_or_else(|| PyOverflowError::new_err("the offset is too large"))?;
        Ok(self.slots.put(low, high, next))
    }

    fn get(&self, low: u64, high: u64) -> i128 {
        i128::from(self.slots.get(low, high)) - 1
    }

    fn put_keys(
        &mut self,
        py: Python<'_>,
        data: &[u8],
        count: i64,
        base_offset: i64,
    ) -> Option<bool> {
        let slots = &mut self.slots;
        worked(py, data.len(), || slots.put_keys(data, count, base_offset))
    }

    fn kept_records<'py>(
        &self,
        data: Bound<'py, PyBytes>,
        count: i64,
        base_offset: i64,
        drop_tombstones: bool,
    ) -> Option<Kept<'py>> {
        let py = data.py();
        let bytes = data.as_bytes();
        let kept = worked(py, bytes.len(), || {
            self.slots
                .kept_records(bytes, count, base_offset, drop_tombstones)
        })?;
        let body = match &kept.body {
            Some(body) => PyBytes::new(py, body),
            None => data,
        };
        Some((body, kept.count, kept.has_tombstone, kept.greatest_delta_ms))
    }
}

#[pymodule]
fn stele_native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("REVISION", REVISION)?;
    module.add_function(wrap_pyfunction!(whole_records, module)?)?;
    module.add_function(wrap_pyfunction!(decode_records, module)?)?;
    module.add_function(wrap_pyfunction!(decode_consumer_records, module)?)?;
    module.add_function(wrap_pyfunction!(decode_columns, module)?)?;
    module.add_function(wrap_pyfunction!(stored_records, module)?)?;
    module.add_function(wrap_pyfunction!(murmur2, module)?)?;
    module.add_function(wrap_pyfunction!(divide, module)?)?;
    module.add_function(wrap_pyfunction!(encode_records, module)?)?;
    module.add_class::<Slots>()
}
