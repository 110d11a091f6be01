//! Runs as text, the same for every store: a table for each run.

use crate::experiment::bench::record::{QUANTILES, Run};
use crate::experiment::bench::result::Variant;
use crate::experiment::figure::Unit;
use std::fmt::{self, Display, Formatter, Write};

/// A run prints as a table: a line for each kind of operation, with and without filters. The
/// alternate form has what operations read before the times.
impl Display for Run {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}  round {}", self.name(), self.round)?;
        let counts = |f: &mut Formatter<'_>| -> fmt::Result {
            self.measured.variants.iter().try_for_each(|variant| write_counts(f, variant))
        };
        if f.alternate() {
            counts(f)?;
        }
        self.write_times(f)?;
        if !f.alternate() {
            counts(f)?;
        }
        self.write_footprint(f)?;
        match self.measured.wrong_answers {
            0 => Ok(()),
            wrong => writeln!(f, "  WRONG ANSWERS: {wrong} lookups"),
        }
    }
}

impl Run {
    fn write_times(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let names = ["p50", "p90", "p99", "p99.9", "p99.99", "longest"];
        write!(f, "  {:<24}{:>11}{:>10}", "", "ops/s", "mean")?;
        names.iter().try_for_each(|name| write!(f, "{name:>10}"))?;
        writeln!(f)?;
        for variant in &self.measured.variants {
            for (kind, latencies) in &variant.kinds {
                let filters = if variant.filters { "" } else { ", no filters" };
                write!(f, "  {:<24}", format!("{}{filters}", kind.name()))?;
                let share = latencies.len() as f64 / variant.seconds.max(1e-9);
                write!(
                    f,
                    "{:>11}{:>10}",
                    Unit::Count.print(share.round()),
                    nanos(latencies.mean())
                )?;
                for (_, share) in QUANTILES {
                    write!(f, "{:>10}", nanos(latencies.value_at_quantile(share) as f64))?;
                }
                writeln!(f, "{:>10}", nanos(latencies.max() as f64))?;
            }
        }
        if let Some(ratio) = self.measured.ratio {
            writeln!(
                f,
                "  without filters an operation takes {:.3} times as long ({:.3} to {:.3}, {} \
                 pairs of turns)",
                ratio.median, ratio.low, ratio.high, ratio.values
            )?;
        } else if self.measured.variants.len() == 2 {
            writeln!(f, "  too short to compare filters: give more --operations or --duration")?;
        }
        Ok(())
    }

    fn write_footprint(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut line = format!("  files {}", bytes(self.footprint.disk_bytes));
        let memory = [
            ("cache", self.footprint.cache_bytes),
            ("filters and indexes in memory", self.footprint.pinned_bytes),
            ("memtables", self.footprint.memtable_bytes),
            ("process", self.resident_bytes),
        ];
        for (name, amount) in memory {
            if let Some(amount) = amount {
                write!(line, ", {name} {}", bytes(amount))?;
            }
        }
        let counts = self.counts();
        if let Some(amplification) = counts.write_amplification() {
            write!(line, "; {amplification:.2} bytes written for one")?;
            let reasons = counts.write_amplification_by_reason();
            let reasons: Vec<_> =
                reasons.iter().map(|(reason, bytes)| format!("{reason} {bytes:.2}")).collect();
            write!(line, " ({})", reasons.join(", "))?;
        }
        if let Some(amplification) = self.space_amplification() {
            write!(line, "; {amplification:.2} bytes of files for one")?;
        }
        writeln!(f, "{line}")
    }
}

fn write_counts(f: &mut Formatter<'_>, variant: &Variant) -> fmt::Result {
    let Some(counts) = variant.counts.filter(|counts| counts.data_blocks + counts.negatives > 0)
    else {
        return Ok(());
    };
    let filters = if variant.filters { "with filters" } else { "no filters" };
    write!(
        f,
        "  {filters:<14}an operation searches {} data blocks and reads {} blocks, {}",
        Unit::Number.print(variant.per_operation(counts.data_blocks)),
        Unit::Number.print(variant.per_operation(counts.blocks_read)),
        Unit::Bytes.print(variant.per_operation(counts.bytes_read)),
    )?;
    match counts.observed_fpr().filter(|_| variant.filters) {
        Some(rate) => writeln!(f, "; false positives {}", Unit::Share.print(rate)),
        None => writeln!(f),
    }
}

fn nanos(number: f64) -> String {
    Unit::Nanos.print(number)
}

fn bytes(number: u64) -> String {
    Unit::Bytes.print(number as f64)
}
