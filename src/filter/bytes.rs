//! The bytes of one filter in memory, which begin with a cache line.
//!
//! FastLocalBloom has all bits of a key in 64 bytes of the filter. If the filter begins with a
//! cache line, a probe touches one line; anywhere else it touches two.

use crate::base::prefetch::LINE_BYTES;
use crate::base::sync::Arc;
use std::fmt;
use std::ops::Deref;

/// Shared bytes whose first one is the first of a cache line.
#[derive(Clone)]
pub(crate) struct FilterBytes {
    /// Up to a line longer than the bytes, because the allocator knows no lines.
    memory: Arc<[u8]>,
    start: usize,
    len: usize,
}

impl FilterBytes {
    /// `len` zeros.
    pub(crate) fn zeroed(len: usize) -> Self {
        let memory: Arc<[u8]> = std::iter::repeat_n(0, len + LINE_BYTES - 1).collect();
        // An interpreter may not know the place. Any start is right; the first byte is slower.
        let start = memory.as_ptr().align_offset(LINE_BYTES);
        FilterBytes { memory, start: if start < LINE_BYTES { start } else { 0 }, len }
    }

    /// The bytes, to write to. Nothing else may refer to them yet.
    pub(crate) fn get_mut(&mut self) -> &mut [u8] {
        // A copy would begin anywhere.
        debug_assert_eq!(Arc::strong_count(&self.memory), 1, "the bytes are shared");
        &mut Arc::make_mut(&mut self.memory)[self.start..self.start + self.len]
    }
}

impl From<&[u8]> for FilterBytes {
    fn from(source: &[u8]) -> Self {
        let mut bytes = FilterBytes::zeroed(source.len());
        bytes.get_mut().copy_from_slice(source);
        bytes
    }
}

impl Deref for FilterBytes {
    type Target = [u8];

    #[inline(always)]
    fn deref(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.len]
    }
}

impl fmt::Debug for FilterBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FilterBytes({})", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_begin_with_a_cache_line() {
        for len in [0, 1, 63, 64, 65, 5000] {
            let source: Vec<u8> = (0..len).map(|i| i as u8).collect();
            let held: Vec<_> = (0..5).map(|_| FilterBytes::from(&source[..])).collect();
            for bytes in held.iter().cloned() {
                assert_eq!(&bytes[..], source);
                assert!(cfg!(miri) || bytes.as_ptr().addr() % LINE_BYTES == 0);
            }
        }
    }
}
