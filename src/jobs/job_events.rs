//! What the user's listener and `tracing` are told of a flush or a compaction: that it begins, and
//! how it ended.
//!
//! Legal calls: `begin`, then one of `done` and `failed`. A job calls `done` when reads see its
//! tables: a flush under the lock of the versions, a compaction right after that lock. A job that
//! panics calls neither: the listener gets the panic as the background error.

use crate::base::error::Error;
use crate::base::events::event::Event;
use crate::base::sync::Ordering;
use crate::base::trace::{Span, span};
use crate::memtable::memtable::Memtable;
use crate::state::engine::Engine;
use crate::state::keyspace::KeyspaceState;
use crate::tree::file_meta::FileMeta;
use std::time::Instant;

/// Tables together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TableSums {
    tables: u64,
    entries: u64,
    bytes: u64,
}

impl TableSums {
    /// The sums of `metas`.
    pub(crate) fn of<'m>(metas: impl IntoIterator<Item = &'m FileMeta>) -> Self {
        let add = |sums: TableSums, meta: &FileMeta| TableSums {
            tables: sums.tables + 1,
            entries: sums.entries + meta.entries,
            bytes: sums.bytes + meta.bytes,
        };
        metas.into_iter().fold(TableSums::default(), add)
    }

    fn record(self, span: &Span) {
        span.record("tables", self.tables);
        span.record("entries", self.entries);
        span.record("bytes", self.bytes);
    }
}

/// A flush that runs.
pub(crate) struct FlushEvents<'a> {
    engine: &'a Engine,
    started: Instant,
    span: Span,
}

impl<'a> FlushEvents<'a> {
    /// The flush of `memtables` begins.
    pub(crate) fn begin<'m>(
        engine: &'a Engine,
        memtables: impl Iterator<Item = &'m Memtable> + Clone,
    ) -> Self {
        let span = span!("flush", engine.context.directory; tables, entries, bytes);
        engine.context.events.emit(|| Event::FlushBegun {
            memtables: memtables.clone().count() as u64,
            entries: memtables.clone().map(|memtable| memtable.entries() as u64).sum(),
            bytes: memtables.map(|memtable| memtable.bytes() as u64).sum(),
        });
        FlushEvents { engine, started: Instant::now(), span }
    }

    /// It wrote these tables.
    pub(crate) fn done(&self, sums: TableSums) {
        sums.record(&self.span);
        self.end(sums, None);
    }

    pub(crate) fn failed(&self, error: &Error) {
        self.end(TableSums::default(), Some(error));
    }

    fn end(&self, sums: TableSums, error: Option<&Error>) {
        let TableSums { tables, entries, bytes } = sums;
        let (duration, error) = (self.started.elapsed(), error.cloned());
        self.engine.context.events.emit(|| Event::FlushEnded {
            tables,
            entries,
            bytes,
            duration,
            error,
        });
    }
}

/// A compaction that runs.
pub(crate) struct CompactionEvents<'a> {
    engine: &'a Engine,
    number: u64,
    keyspace: &'a KeyspaceState,
    input_level: usize,
    output_level: usize,
    started: Instant,
    span: Span,
}

impl<'a> CompactionEvents<'a> {
    /// A compaction of `keyspace` begins, which replaces these tables.
    pub(crate) fn begin<'m>(
        engine: &'a Engine,
        keyspace: &'a KeyspaceState,
        (input_level, output_level): (usize, usize),
        replaced: impl Iterator<Item = &'m FileMeta>,
    ) -> Self {
        let span = span!(
            "compaction",
            engine.context.directory,
            keyspace = keyspace.name.as_str(),
            input_level = input_level as u64,
            output_level = output_level as u64;
            tables, entries, bytes
        );
        let number = engine.jobs.compactions_begun.fetch_add(1, Ordering::Relaxed) + 1;
        engine.context.events.emit(|| {
            let TableSums { tables, entries, bytes } = TableSums::of(replaced);
            Event::CompactionBegun {
                number,
                keyspace: keyspace.name.clone(),
                input_level,
                output_level,
                tables,
                entries,
                bytes,
            }
        });
        let started = Instant::now();
        CompactionEvents { engine, number, keyspace, input_level, output_level, started, span }
    }

    /// It wrote these tables and dropped that many entries.
    pub(crate) fn done(&self, sums: TableSums, entries_dropped: u64) {
        sums.record(&self.span);
        self.end(sums, entries_dropped, None);
    }

    pub(crate) fn failed(&self, error: &Error) {
        self.end(TableSums::default(), 0, Some(error));
    }

    fn end(&self, sums: TableSums, entries_dropped: u64, error: Option<&Error>) {
        let TableSums { tables, entries, bytes } = sums;
        self.engine.context.events.emit(|| Event::CompactionEnded {
            number: self.number,
            keyspace: self.keyspace.name.clone(),
            input_level: self.input_level,
            output_level: self.output_level,
            tables,
            entries,
            bytes,
            entries_dropped,
            duration: self.started.elapsed(),
            error: error.cloned(),
        });
    }
}
