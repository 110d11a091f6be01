//! What reading blocks takes: [`ReadCost`].

use siftdb_cli::foreign_filters::LookupCost;

/// The time of a read, as a constant and a part for each byte.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ReadCost {
    pub nanos: f64,
    pub nanos_per_byte: f64,
}

impl ReadCost {
    /// Fits nanoseconds to bytes by least squares, from pairs of both. Without blocks of
    /// different sizes, and where larger ones were faster by chance, it is flat.
    pub fn of(reads: &[(f64, f64)]) -> Self {
        let count = reads.len().max(1) as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| reads.iter().map(of).sum::<f64>() / count;
        let (bytes, nanos) = (mean(|read| read.0), mean(|read| read.1));
        let spread: f64 = reads.iter().map(|read| (read.0 - bytes).powi(2)).sum();
        let both: f64 = reads.iter().map(|read| (read.0 - bytes) * (read.1 - nanos)).sum();
        let slope = if spread > 0.0 { (both / spread).max(0.0) } else { 0.0 };
        // No read takes less than nothing.
        let slope = slope.min(nanos / bytes.max(1.0));
        ReadCost { nanos: nanos - slope * bytes, nanos_per_byte: slope }
    }

    /// The time that the reads of a lookup take.
    pub fn nanos_per_lookup(&self, cost: &LookupCost) -> f64 {
        self.nanos * cost.blocks_per_lookup() + self.nanos_per_byte * cost.bytes_per_lookup()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_blocks_take_longer() {
        let line = ReadCost::of(&[(100.0, 1_200.0), (200.0, 1_400.0), (600.0, 2_200.0)]);
        assert!((line.nanos - 1_000.0).abs() < 1e-6 && (line.nanos_per_byte - 2.0).abs() < 1e-6);
        assert_eq!(ReadCost::of(&[(100.0, 900.0)]).nanos, 900.0);
        let falling = ReadCost::of(&[(100.0, 900.0), (200.0, 500.0)]);
        assert_eq!(falling, ReadCost { nanos: 700.0, nanos_per_byte: 0.0 });
        let steep = ReadCost::of(&[(100.0, 0.0), (200.0, 900.0)]);
        assert!(steep.nanos >= 0.0 && steep.nanos_per_byte == 3.0, "{steep:?}");
        assert_eq!(ReadCost::of(&[]), ReadCost::default());
    }
}
