//! Records as columns in the layout of Apache Arrow: https://arrow.apache.org/docs/format/Columnar.html.

use crate::head::Head;
use crate::varint::Cursor;

/// Null where a bit is 0. The first value is the lowest bit of the first byte.
#[derive(Default)]
pub struct Validity {
    pub bits: Vec<u8>,
    pub nulls: usize,
    values: usize,
}

impl Validity {
    fn push(&mut self, is_valid: bool) {
        if self.values % 8 == 0 {
            self.bits.push(0);
        }
        if is_valid {
            self.bits[self.values / 8] |= 1 << (self.values % 8);
        } else {
            self.nulls += 1;
        }
        self.values += 1;
    }
}

/// Values of any length. Their bytes stay where they are until `copy_to` puts them one behind the
/// other, straight into the memory that Python keeps.
pub struct Binary<'a> {
    pub validity: Validity,
    pub offsets: Vec<u8>, // numbers of 32 bits: one more than there are values
    pub size_bytes: usize,
    values: Vec<&'a [u8]>, // without the empty ones
}

impl<'a> Binary<'a> {
    fn with_room(values: usize) -> Self {
        let mut offsets = Vec::with_capacity(4 * (values + 1));
        offsets.extend(0i32.to_ne_bytes());
        Self {
            validity: Validity::default(),
            offsets,
            size_bytes: 0,
            values: Vec::with_capacity(values),
        }
    }

    /// None: more bytes than 32 bits can count.
    fn push(&mut self, value: Option<&'a [u8]>) -> Option<()> {
        self.validity.push(value.is_some());
        if let Some(bytes) = value.filter(|bytes| !bytes.is_empty()) {
            self.values.push(bytes);
            self.size_bytes += bytes.len();
        }
        let end = i32::try_from(self.size_bytes).ok()?;
        self.offsets.extend(end.to_ne_bytes());
        Some(())
    }

    /// `room` has `size_bytes`.
    pub fn copy_to(&self, room: &mut [u8]) {
        let mut rest = room;
        for value in &self.values {
            let (here, behind) = rest.split_at_mut(value.len());
            here.copy_from_slice(value);
            rest = behind;
        }
    }
}

/// The headers of each record as a list of pairs. A record without headers has null.
pub struct Headers<'a> {
    pub validity: Validity,
    pub offsets: Vec<u8>, // of each record's first header among all, numbers of 32 bits
    pub names: Binary<'a>,
    pub values: Binary<'a>,
    count: i32,
}

impl<'a> Headers<'a> {
    fn new() -> Self {
        Self {
            validity: Validity::default(),
            offsets: 0i32.to_ne_bytes().to_vec(),
            names: Binary::with_room(0),
            values: Binary::with_room(0),
            count: 0,
        }
    }

    fn push(&mut self, cursor: &mut Cursor<'a>, count: u64) -> Option<()> {
        for _ in 0..count {
            let length = cursor.varint64()?;
            let name = cursor.field(length)??; // it may not be null
            std::str::from_utf8(name).ok()?;
            self.names.push(Some(name))?;
            let length = cursor.varint64()?;
            self.values.push(cursor.field(length)?)?;
        }
        self.validity.push(count > 0);
        self.count = self.count.checked_add(i32::try_from(count).ok()?)?;
        self.offsets.extend(self.count.to_ne_bytes());
        Some(())
    }
}

/// What the records of some batches hold. Times and offsets are relative to those of the batch.
pub struct Columns<'a> {
    pub times: Vec<u8>,  // numbers of 64 bits
    pub deltas: Vec<u8>, // numbers of 64 bits
    pub keys: Binary<'a>,
    pub values: Binary<'a>,
    pub headers: Option<Headers<'a>>,
}

impl<'a> Columns<'a> {
    /// None: a body is not sound, and the reference says why.
    pub fn of(bodies: &[(&'a [u8], usize)], with_headers: bool) -> Option<Self> {
        // A record has no fewer than 7 bytes, whatever a batch claims.
        let records: usize = bodies
            .iter()
            .map(|(data, count)| *count.min(&(data.len() / 7)))
            .sum();
        let mut columns = Self {
            times: Vec::with_capacity(8 * records),
            deltas: Vec::with_capacity(8 * records),
            keys: Binary::with_room(records),
            values: Binary::with_room(records),
            headers: with_headers.then(Headers::new),
        };
        for (data, count) in bodies {
            let mut cursor = Cursor { data, position: 0 };
            for _ in 0..*count {
                columns.push(&mut cursor)?;
            }
            if cursor.position != data.len() {
                return None;
            }
        }
        Some(columns)
    }

    fn push(&mut self, cursor: &mut Cursor<'a>) -> Option<()> {
        let head = Head::read(cursor)?;
        self.times.extend(head.timestamp_delta_ms.to_ne_bytes());
        self.deltas.extend(head.offset_delta.to_ne_bytes());
        let length = cursor.varint64()?;
        self.keys.push(cursor.field(length)?)?;
        let length = cursor.varint64()?;
        self.values.push(cursor.field(length)?)?;
        self.push_headers(cursor, head.end)?;
        (cursor.position == head.end).then_some(())
    }

    fn push_headers(&mut self, cursor: &mut Cursor<'a>, end: usize) -> Option<()> {
        let count = cursor.varint64()?;
        if count & 1 == 1 || cursor.position > end {
            return None;
        }
        match &mut self.headers {
            Some(headers) => headers.push(cursor, count >> 1)?,
            None if count > 0 => cursor.position = end, // nobody looks at them
            None => {}
        }
        Some(())
    }
}
