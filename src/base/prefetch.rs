//! Prefetch hints: they tell the processor which cache line will be read soon.
//!
//! A hint reads and writes nothing and changes no result. It needs one unsafe call, because the
//! intrinsic takes a pointer.
#![allow(unsafe_code)]

/// Bytes of a cache line.
pub(crate) const LINE_BYTES: usize = 64;

/// Tells the processor that the byte at `offset` will be read soon. No effect beyond the end of
/// `bytes`, and on processors for which stable Rust has no such instruction.
#[inline]
pub(crate) fn prefetch(bytes: &[u8], offset: usize) {
    if let Some(byte) = bytes.get(offset) {
        prefetch_line(byte);
    }
}

/// Tells the processor that the cache line in which `place` begins will be read soon.
#[inline]
pub(crate) fn prefetch_line<T>(place: &T) {
    hint(std::ptr::from_ref(place).cast());
}

/// Tells the processor that the cache line before `place` will be read or written soon: where
/// `place` is aligned to lines and in an `Arc`, that line has its counts.
#[inline]
pub(crate) fn prefetch_line_before<T>(place: &T) {
    hint(std::ptr::from_ref(place).cast::<i8>().wrapping_sub(LINE_BYTES));
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
}
