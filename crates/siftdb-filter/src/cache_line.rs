//! Cache lines: hints which one will be read soon, and bytes that begin with one.
//!
//! A prefetch hint reads and writes nothing and changes no result. It needs one unsafe call,
//! because the intrinsic takes a pointer.
#![allow(unsafe_code)]

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// Bytes of a cache line.
pub const LINE_BYTES: usize = 64;

/// Tells the processor that the byte at `offset` will be read soon. No effect beyond the end of
/// `bytes`, and on processors for which stable Rust has no such instruction.
#[inline]
pub fn prefetch(bytes: &[u8], offset: usize) {
    if let Some(byte) = bytes.get(offset) {
        prefetch_line(byte);
    }
}

/// Tells the processor that the cache line in which `target` begins will be read soon.
#[inline]
pub fn prefetch_line<T>(target: &T) {
    hint(std::ptr::from_ref(target).cast());
}

/// Tells the processor that the cache line before `target` will be read or written soon: where
/// `target` is aligned to lines and in an `Arc`, that line has its counts.
#[inline]
pub fn prefetch_line_before<T>(target: &T) {
    hint(std::ptr::from_ref(target).cast::<i8>().wrapping_sub(LINE_BYTES));
}

#[inline]
fn hint(pointer: *const i8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: the hint reads and writes no memory, wherever the pointer leads.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(pointer) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = pointer;
}

/// Shared bytes whose first one is the first of a cache line. FastLocalBloom has all bits of a key
/// in 64 bytes of the filter: in such bytes a probe touches one line, anywhere else two.
#[derive(Clone)]
pub struct AlignedBytes {
    /// Up to a line longer than the bytes, because the allocator knows no lines.
    memory: Arc<[u8]>,
    start: usize,
    len: usize,
}

impl AlignedBytes {
    /// `len` zeros.
    pub fn zeroed(len: usize) -> Self {
        let memory: Arc<[u8]> = std::iter::repeat_n(0, len + LINE_BYTES - 1).collect();
        // An interpreter may not know the place. Any start is right; the first byte is slower.
        let start = memory.as_ptr().align_offset(LINE_BYTES);
        AlignedBytes { memory, start: if start < LINE_BYTES { start } else { 0 }, len }
    }

    /// The bytes, to write to. Nothing else may refer to them yet.
    pub fn get_mut(&mut self) -> &mut [u8] {
        // A copy would begin anywhere.
        debug_assert_eq!(Arc::strong_count(&self.memory), 1, "the bytes are shared");
        &mut Arc::make_mut(&mut self.memory)[self.start..self.start + self.len]
    }
}

impl From<&[u8]> for AlignedBytes {
    fn from(source: &[u8]) -> Self {
        let mut bytes = AlignedBytes::zeroed(source.len());
        bytes.get_mut().copy_from_slice(source);
        bytes
    }
}

impl Deref for AlignedBytes {
    type Target = [u8];

    #[inline(always)]
    fn deref(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.len]
    }
}

impl fmt::Debug for AlignedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBytes({})", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefetch_takes_any_offset() {
        for offset in [0, 1, 3, 4, usize::MAX] {
            prefetch(&[1, 2, 3], offset);
        }
        prefetch(&[], 0);
        prefetch_line_before(&0);
    }

    #[test]
    fn aligned_bytes_begin_with_a_cache_line() {
        for len in [0, 1, 63, 64, 65, 5000] {
            let source: Vec<u8> = (0..len).map(|i| i as u8).collect();
            let held: Vec<_> = (0..5).map(|_| AlignedBytes::from(&source[..])).collect();
            for bytes in held.iter().cloned() {
                assert_eq!(&bytes[..], source);
                assert!(cfg!(miri) || bytes.as_ptr().addr() % LINE_BYTES == 0);
            }
        }
    }
}
