//! What two byte strings begin with.

/// Length of the longest common prefix, eight bytes at a time.
#[inline]
#[must_use]
pub fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let len = a.len().min(b.len());
    let mut common = 0;
    // Not `zip`, whose parts are calls where they land in another unit of the compiler.
    while let (Some(word_a), Some(word_b)) =
        (a[common..len].first_chunk(), b[common..len].first_chunk())
    {
        let difference = u64::from_le_bytes(*word_a) ^ u64::from_le_bytes(*word_b);
        if difference != 0 {
            return common + difference.trailing_zeros() as usize / 8;
        }
        common += 8;
    }
    while common < len && a[common] == b[common] {
        common += 1;
    }
    common
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_prefixes_are_found_at_every_length() {
        for a in 0..20 {
            for b in 0..20 {
                for at in 0..20 {
                    let left = vec![7; a];
                    let mut right = vec![7; b];
                    if let Some(byte) = right.get_mut(at) {
                        *byte = 9;
                    }
                    assert_eq!(common_prefix(&left, &right), a.min(b).min(at), "{a} {b} {at}");
                }
            }
        }
    }
}
