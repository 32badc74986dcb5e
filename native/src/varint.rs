//! Variable-length numbers, still in zigzag: https://protobuf.dev/programming-guides/encoding.

/// Reads the bytes of a batch from front to back. A position may lie behind the end: then nothing
/// more can be read.
pub struct Cursor<'a> {
    pub data: &'a [u8],
    pub position: usize,
}

/// Null as a length: -1 in zigzag.
pub const NULL: u64 = 1;

impl<'a> Cursor<'a> {
    pub fn byte(&mut self) -> Option<u8> {
        let byte = *self.data.get(self.position)?;
        self.position += 1;
        Some(byte)
    }

    pub fn skip(&mut self, bytes: u64) {
        self.position = self.position.saturating_add(bytes as usize);
    }

    /// A number of at most `bits` bits in at most `max_bytes` bytes. None: there is none here.
    fn varint(&mut self, max_bytes: u32, bits: u32) -> Option<u64> {
        let mut value: u128 = 0;
        for place in 0..max_bytes {
            let byte = self.byte()?;
            value |= u128::from(byte & 0x7f) << (7 * place);
            if byte < 0x80 {
                return if value >> bits == 0 {
                    Some(value as u64)
                } else {
                    None
                };
            }
        }
        None
    }

    /// A length, a count or an offset. The first two bytes hold nearly all of them.
    pub fn varint32(&mut self) -> Option<u64> {
        let low = *self.data.get(self.position)?;
        if low < 0x80 {
            self.position += 1;
            return Some(u64::from(low));
        }
        let high = *self.data.get(self.position + 1)?;
        if high < 0x80 {
            self.position += 2;
            return Some(u64::from(low & 0x7f) | u64::from(high) << 7);
        }
        self.varint(5, 32)
    }

    /// A time, or a length of a reader that takes 64 bits.
    pub fn varint64(&mut self) -> Option<u64> {
        let mut value = 0;
        for place in 0..9 {
            let byte = *self.data.get(self.position + place)?;
            value |= u64::from(byte & 0x7f) << (7 * place);
            if byte < 0x80 {
                self.position += place + 1;
                return Some(value);
            }
        }
        self.varint(10, 64)
    }

    /// The bytes of a field, which may be null. The outer None: there is no such field here.
    pub fn field(&mut self, length: u64) -> Option<Option<&'a [u8]>> {
        if length == NULL {
            return Some(None);
        }
        if length & 1 == 1 {
            return None;
        }
        let end = self.position.checked_add((length >> 1) as usize)?;
        let data: &'a [u8] = self.data;
        let field = data.get(self.position..end)?;
        self.position = end;
        Some(Some(field))
    }
}

/// The number that zigzag stands for.
pub fn from_zigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

fn to_zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

pub fn put_varint(out: &mut Vec<u8>, value: i64) {
    let mut left = to_zigzag(value);
    while left > 0x7f {
        out.push(left as u8 | 0x80);
        left >>= 7;
    }
    out.push(left as u8);
}

/// The number of bytes that `put_varint` writes.
pub fn varint_size(value: i64) -> usize {
    let bits = 64 - (to_zigzag(value) | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}
