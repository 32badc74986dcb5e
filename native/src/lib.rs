//! The records of Kafka's batches, at the speed of the machine.
//!
//! Each function does what the Python function of its name does in `stele.wire`, which is the
//! reference. What is not sound is left to the reference: it knows why.

#![forbid(unsafe_code)]

mod check;
mod decode;
mod varint;

use pyo3::prelude::*;
use pyo3::types::{PyList, PyType};

/// Changes with the functions, so that a module that was built before is told from the right one.
const REVISION: u32 = 1;

/// Inputs from here on are worked on without the lock of the interpreter.
const LARGE_BYTES: usize = 64 * 1024;

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
    let work = || check::whole_records(data, from, stop, &rules);
    let progress = if data.len() < LARGE_BYTES {
        work()
    } else {
        py.detach(work)
    };
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
    decode::Maker::of(record)?.records(data, count, &base)
}

#[pymodule]
fn stele_native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("REVISION", REVISION)?;
    module.add_function(wrap_pyfunction!(whole_records, module)?)?;
    module.add_function(wrap_pyfunction!(decode_records, module)?)
}
