//! Tests of [`LogTail`]: logs that grow byte by byte, damage, recoveries, and files that go.

use crate::base::error::Result;
use crate::base::filename::FileName;
use crate::base::sync::{Arc, Mutex};
use crate::base::write_batch::WriteBatch;
use crate::env::api::{Env, RandomFile};
use crate::env::counting::CountingEnv;
use crate::env::layer::EnvLayer;
use crate::env::mem::MemEnv;
use crate::log::wal::consistency::{CleanClose, ManifestFacts};
use crate::log::wal::format::{DatabaseIdentity, WalStart};
use crate::log::wal::tail::{LogTail, Reach, TailEnd};
use crate::log::wal::writer::WalWriter;
use proptest::prelude::*;
use std::io;
use std::path::{Path, PathBuf};

const MANIFEST: u64 = 2;

fn home() -> &'static Path {
    Path::new("/")
}

fn path_of(log: u64) -> PathBuf {
    FileName::Wal(log).path(home())
}

fn facts() -> ManifestFacts {
    ManifestFacts { number: MANIFEST, bytes: 100, log_number: 3, ..ManifestFacts::default() }
}

fn start(synced_through: u64, previous_log: u64, previous_last: u64) -> WalStart {
    WalStart {
        synced_through,
        previous_log,
        previous_last_sequence: previous_last,
        first_sequence: previous_last + 1,
        manifest_number: MANIFEST,
        // The manifest grows after it was read.
        manifest_synced_bytes: 1000,
        database: DatabaseIdentity::default(),
    }
}

fn create(env: &dyn Env, log: u64, start: &WalStart) -> WalWriter {
    // Between the start and the batches, as after a bulk load.
    WalWriter::create(env, home(), log, start, &[(5, 1)], 2048).unwrap()
}

/// Writes one batch of `count` entries, whose keys are the sequences.
fn put(wal: &mut WalWriter, synced_through: u64, sequence: u64, count: u32, bytes: usize) {
    let mut batch = WriteBatch::new();
    for i in 0..u64::from(count) {
        batch.put(format!("{:05}", sequence + i), vec![0xa5; bytes]);
    }
    wal.append(synced_through, sequence, count, [&batch.entries[..]]).unwrap();
}

/// Logs 3, 4 and 6 with sequences 1 to 4, 5 to 9 and 10 to 12, and their bytes.
fn sample(large: usize) -> Vec<(u64, Vec<u8>)> {
    let env = MemEnv::new();
    let mut log3 = create(&env, 3, &start(0, 0, 0));
    put(&mut log3, 0, 1, 2, 40);
    put(&mut log3, 0, 3, 1, 100);
    log3.sync().unwrap();
    put(&mut log3, 3, 4, 1, 10);
    let mut log4 = create(&env, 4, &start(3, 3, 4));
    put(&mut log4, 3, 5, 3, 20);
    put(&mut log4, 3, 8, 1, large);
    put(&mut log4, 3, 9, 1, 0);
    let mut log6 = create(&env, 6, &start(3, 4, 9));
    log6.sync().unwrap();
    put(&mut log6, 9, 10, 1, 30);
    put(&mut log6, 9, 11, 2, 30);
    [3, 4, 6].map(|log| (log, env.read_file(&path_of(log)).unwrap())).to_vec()
}

/// What a tail hands out: the sequences, checked to be consecutive and of the expected contents.
#[derive(Debug, Default)]
struct Reader {
    sequences: Vec<u64>,
}

impl Reader {
    fn read(&mut self, tail: &mut LogTail, logs: &[u64], facts: &ManifestFacts) -> Result<TailEnd> {
        let end = tail.read(logs, facts, Reach::ALL, &mut |_, batch| {
            for (entry, sequence) in batch.iter().zip(batch.sequence..) {
                assert!(self.sequences.last().is_none_or(|last| *last < sequence));
                assert_eq!(entry.key, format!("{sequence:05}").as_bytes());
                assert!(entry.value.iter().all(|byte| *byte == 0xa5));
                self.sequences.push(sequence);
            }
            Ok(())
        });
        assert_eq!(self.sequences.last().copied().unwrap_or(0), tail.last);
        end
    }

    fn last(&self) -> u64 {
        self.sequences.last().copied().unwrap_or(0)
    }
}

fn tail_over(env: Arc<dyn Env>, facts: &ManifestFacts) -> LogTail {
    LogTail::new(env, home(), facts.log_number, facts.flushed_through)
}

fn tail_of(env: &MemEnv, facts: &ManifestFacts) -> LogTail {
    tail_over(Arc::new(env.clone()), facts)
}

/// One reading by a new tail: how it ended, and the last sequence.
fn read_new(env: &MemEnv, logs: &[u64], facts: &ManifestFacts) -> (Result<TailEnd>, u64) {
    let mut reader = Reader::default();
    let end = reader.read(&mut tail_of(env, facts), logs, facts);
    assert!(reader.sequences.iter().copied().eq(1..=reader.last()), "{:?}", reader.sequences);
    (end, reader.last())
}

fn written(files: &[(u64, Vec<u8>)]) -> MemEnv {
    let env = MemEnv::new();
    files.iter().for_each(|(log, bytes)| env.write_file(&path_of(*log), bytes));
    env
}

/// The last sequence of each record of a log with the end of the record.
fn ends_of(log: u64, bytes: &[u8]) -> Vec<(usize, u64)> {
    use crate::log::record::reader::{RecordReader, Step};
    use crate::log::wal::format::{WalBody, decode};
    let env = written(&[(log, bytes.to_vec())]);
    let mut reader = RecordReader::open(&env, &path_of(log), log).unwrap();
    let mut ends: Vec<(usize, u64)> = Vec::new();
    while let Step::Record(record) = reader.step().unwrap() {
        let last = match decode(record.payload).unwrap().body {
            WalBody::Start(start) => start.previous_last_sequence,
            WalBody::Batch(batch) => batch.last_sequence(),
            WalBody::Loads(_) => ends.last().map_or(0, |(_, last)| *last),
        };
        ends.push((record.end as usize, last));
    }
    ends
}

#[test]
fn a_growing_log_is_read_as_it_grows() {
    for zeros in [false, true] {
        let env = MemEnv::new();
        let (mut tail, mut reader) = (tail_of(&env, &facts()), Reader::default());
        let mut logs = Vec::new();
        for (log, bytes) in sample(700) {
            let ends = ends_of(log, &bytes);
            let mut file = env.create_new(&path_of(log)).unwrap();
            logs.push(log);
            for (at, byte) in bytes.iter().enumerate() {
                // A writer allocates ahead only after the start record.
                if zeros && at == ends[0].0 {
                    file.allocate_zeroed(at as u64, (bytes.len() - at) as u64 + 100).unwrap();
                }
                file.write_at(at as u64, &[*byte]).unwrap();
                assert_eq!(reader.read(&mut tail, &logs, &facts()).unwrap(), TailEnd::UpToDate);
                let expected = ends.iter().rfind(|(end, _)| *end <= at + 1).map(|(_, last)| *last);
                // Before its start record a log says nothing.
                assert_eq!(reader.last(), expected.unwrap_or(reader.last()), "{log} at {at}");
            }
        }
        assert_eq!(reader.last(), 12);
        let start = tail.newest_start();
        assert_eq!((tail.log(), tail.synced_through), (6, 9));
        assert_eq!((start.manifest_number, start.manifest_synced_bytes), (2, 1000));
    }
}

#[test]
fn a_new_tail_reads_every_whole_record() {
    let files = sample(40_000);
    let all: Vec<u64> = files.iter().map(|(log, _)| *log).collect();
    for (place, (log, bytes)) in files.iter().enumerate() {
        let ends = ends_of(*log, bytes);
        let env = written(&files[..place]);
        let edge = |at: &usize| ends.iter().any(|(end, _)| end.abs_diff(*at) < 40);
        for cut in (0..=bytes.len()).filter(|at| at % 61 == 0 || edge(at)) {
            env.write_file(&path_of(*log), &bytes[..cut]);
            let (end, last) = read_new(&env, &all[..=place], &facts());
            assert_eq!(end.unwrap(), TailEnd::UpToDate);
            let before = if place == 0 { 0 } else { ends[0].1 };
            let expected = ends.iter().rfind(|(end, _)| *end <= cut).map(|(_, last)| *last);
            assert_eq!(last, expected.unwrap_or(before), "log {log} cut at {cut}");
        }
    }
}

#[test]
fn a_cut_before_a_later_log_is_damage() {
    let files = sample(300);
    for (place, (log, bytes)) in files.iter().enumerate().take(2) {
        let data = ends_of(*log, bytes).last().unwrap().0;
        for cut in 0..data {
            let env = written(&files);
            env.write_file(&path_of(*log), &bytes[..cut]);
            let (end, last) = read_new(&env, &[3, 4, 6], &facts());
            let error = end.unwrap_err();
            assert!(error.is_corruption(), "{error}");
            assert_eq!(error.damage().unwrap().0, path_of(*log), "{error}");
            assert!(last < [4, 9][place]);
        }
    }
}

#[test]
fn flipped_bits_are_damage_or_the_end() {
    let files = sample(300);
    for (log, bytes) in &files {
        let ends = ends_of(*log, bytes);
        let (data, last_record) = (ends[ends.len() - 1].0, ends[ends.len() - 2].0);
        let env = written(&files);
        let mut bytes = bytes.clone();
        for at in 0..data {
            for flip in [1 << (at % 8), 0xff] {
                bytes[at] ^= flip;
                env.write_file(&path_of(*log), &bytes);
                let (end, last) = read_new(&env, &[3, 4, 6], &facts());
                match end {
                    Err(error) => assert!(error.is_corruption(), "{error}"),
                    Ok(end) => {
                        let is_last = *log == 6 && at >= last_record;
                        assert!(is_last && end == TailEnd::UpToDate, "log {log} at {at}");
                        assert_eq!(last, 10);
                        // The manifest knows better.
                        let synced = ManifestFacts { synced_through: 11, ..facts() };
                        assert!(read_new(&env, &[3, 4, 6], &synced).0.unwrap_err().is_corruption());
                        let close =
                            CleanClose { log: 6, log_bytes: data as u64, last_sequence: 12 };
                        let closed = ManifestFacts { clean_close: Some(close), ..facts() };
                        assert!(read_new(&env, &[3, 4, 6], &closed).0.unwrap_err().is_corruption());
                    }
                }
                bytes[at] ^= flip;
            }
        }
        env.write_file(&path_of(*log), &bytes);
    }
}

/// Shows zeros in a range of a file until it was read there that many times.
#[derive(Debug)]
struct Late {
    inner: MemEnv,
    path: PathBuf,
    range: std::ops::Range<u64>,
    reads: Arc<Mutex<usize>>,
}

#[derive(Debug)]
struct LateFile(Arc<dyn RandomFile>, std::ops::Range<u64>, Arc<Mutex<usize>>);

impl EnvLayer for Late {
    fn inner(&self) -> &dyn Env {
        &self.inner
    }

    fn open_random(&self, path: &Path) -> io::Result<Arc<dyn RandomFile>> {
        let file = Env::open_random(&self.inner, path)?;
        match path == self.path {
            true => Ok(Arc::new(LateFile(file, self.range.clone(), Arc::clone(&self.reads)))),
            false => Ok(file),
        }
    }
}

impl RandomFile for LateFile {
    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(offset, buffer)?;
        let mut reads = self.2.lock();
        if *reads > 0 && offset <= self.1.start && offset + buffer.len() as u64 >= self.1.end {
            *reads -= 1;
            buffer[(self.1.start - offset) as usize..(self.1.end - offset) as usize].fill(0);
        }
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
}

#[test]
fn a_bad_place_is_read_once_more() {
    let files = sample(100);
    let ends = ends_of(3, &files[0].1);
    for logs in [&[3][..], &[3, 4, 6]] {
        for (from, to) in ends.iter().zip(&ends[1..]) {
            let range = from.0 as u64..to.0 as u64;
            // The start is read by one load, and the batches by another one.
            for (reads, is_read) in [(2, true), (3, false)] {
                let inner = written(&files);
                let reads = Arc::new(Mutex::new(reads));
                let env = Late { inner, path: path_of(3), range: range.clone(), reads };
                let mut tail = tail_over(Arc::new(env), &facts());
                let mut reader = Reader::default();
                let end = reader.read(&mut tail, logs, &facts());
                let is_last = to.0 == ends.last().unwrap().0 && logs.len() == 1;
                match end {
                    Ok(_) if is_last => assert!(reader.last() >= 3),
                    Ok(_) => assert!(is_read, "{range:?} of {logs:?}"),
                    Err(error) => assert!(!is_read && error.is_corruption(), "{error}"),
                }
            }
        }
    }
}

#[test]
fn records_that_a_recovery_dropped_are_skipped() {
    let env = written(&sample(300));
    // Log 4 lost 8 and 9. The recovery ended history at 7, used no number again, and continued.
    let files = sample(300);
    let ends = ends_of(4, &files[1].1);
    let mut bytes = files[1].1.clone();
    // After the start, the loads and the first batch.
    bytes[ends[2].0 + 20] ^= 1;
    env.write_file(&path_of(4), &bytes);
    let resumed = WalStart { first_sequence: 20, ..start(7, 4, 7) };
    let mut log8 = create(&env, 8, &resumed);
    let logs = [3, 4, 6, 8];
    let (mut tail, mut reader) = (tail_of(&env, &facts()), Reader::default());
    assert_eq!(reader.read(&mut tail, &logs, &facts()).unwrap(), TailEnd::UpToDate);
    assert_eq!(reader.last(), 7);
    put(&mut log8, 7, 20, 2, 5);
    assert_eq!(reader.read(&mut tail, &logs, &facts()).unwrap(), TailEnd::UpToDate);
    assert_eq!(reader.sequences[6..], [7, 20, 21]);
    // Records of log 4 that can still be read, but that the next log does not follow.
    env.write_file(&path_of(4), &files[1].1);
    let (mut tail, mut reader) = (tail_of(&env, &facts()), Reader::default());
    assert_eq!(reader.read(&mut tail, &logs, &facts()).unwrap(), TailEnd::UpToDate);
    assert_eq!(reader.sequences[6..], [7, 20, 21]);
    // A batch goes beyond the sequence that the next log follows.
    let crossing = written(&files);
    create(&crossing, 8, &WalStart { first_sequence: 20, ..start(5, 4, 6) });
    let (end, last) = read_new(&crossing, &logs, &facts());
    assert!(end.unwrap_err().is_corruption() && last == 4);
}

#[test]
fn a_history_that_goes_back_is_told() {
    let env = written(&sample(300)[..2]);
    let (mut tail, mut reader) = (tail_of(&env, &facts()), Reader::default());
    assert_eq!(reader.read(&mut tail, &[3, 4], &facts()).unwrap(), TailEnd::UpToDate);
    assert_eq!(reader.last(), 9);
    create(&env, 8, &WalStart { first_sequence: 20, ..start(7, 4, 7) });
    let rewound = TailEnd::Rewound { to: 7 };
    assert_eq!(reader.read(&mut tail, &[3, 4, 8], &facts()).unwrap(), rewound);
    assert_eq!(reader.read(&mut tail, &[3, 4, 8], &facts()).unwrap(), rewound);
}

#[test]
fn needed_logs_that_are_gone_start_over() {
    let files = sample(300);
    let env = written(&files);
    let over = |log| TailEnd::StartOver { log };
    assert_eq!(read_new(&env, &[4, 6], &facts()).0.unwrap(), over(3));
    let (end, last) = read_new(&env, &[3, 6], &facts());
    assert_eq!((end.unwrap(), last), (over(4), 4));
    // A stale manifest knows of no log yet.
    let stale = ManifestFacts { log_number: 0, ..facts() };
    assert_eq!(read_new(&env, &[4, 6], &stale).0.unwrap(), over(3));
    // Listed, and gone when it is opened.
    env.remove_file(&path_of(6));
    assert_eq!(read_new(&env, &[3, 4, 6], &facts()).0.unwrap(), over(6));
    // Written under a manifest that was not read.
    let env = written(&files);
    let mut log8 = create(&env, 8, &WalStart { manifest_number: 7, ..start(9, 6, 12) });
    let (end, last) = read_new(&env, &[3, 4, 6, 8], &facts());
    assert_eq!((end.unwrap(), last), (TailEnd::UpToDate, 12));
    put(&mut log8, 9, 13, 1, 5);
    assert_eq!(read_new(&env, &[3, 4, 6, 8], &facts()).0.unwrap(), over(8));
    let newer = ManifestFacts { number: 7, ..facts() };
    assert_eq!(read_new(&env, &[3, 4, 6, 8], &newer).1, 13);
}

#[test]
fn an_open_log_is_read_after_its_removal() {
    let env = MemEnv::new();
    let mut log3 = create(&env, 3, &start(0, 0, 0));
    put(&mut log3, 0, 1, 2, 40);
    let (mut tail, mut reader) = (tail_of(&env, &facts()), Reader::default());
    reader.read(&mut tail, &[3], &facts()).unwrap();
    put(&mut log3, 0, 3, 1, 40);
    let mut log4 = create(&env, 4, &start(0, 3, 3));
    env.remove(&path_of(3)).unwrap();
    put(&mut log4, 0, 4, 1, 40);
    let flushed = ManifestFacts { log_number: 4, flushed_through: 3, ..facts() };
    assert_eq!(reader.read(&mut tail, &[4], &flushed).unwrap(), TailEnd::UpToDate);
    assert_eq!(reader.sequences, [1, 2, 3, 4]);
    // The same again, with a log missing in between.
    put(&mut log4, 0, 5, 1, 40);
    create(&env, 7, &start(0, 5, 6));
    assert_eq!(reader.read(&mut tail, &[7], &flushed).unwrap(), TailEnd::StartOver { log: 5 });
    assert_eq!(reader.last(), 5);
}

/// Batches that are missing between sound ones, and batches that come again.
#[test]
fn batches_out_of_sequence_are_damage() {
    for (wrong, count) in [(4, 1), (2, 2), (1, 1)] {
        let env = MemEnv::new();
        let mut log = create(&env, 3, &start(0, 0, 0));
        put(&mut log, 0, 1, 2, 40);
        put(&mut log, 0, wrong, count, 40);
        put(&mut log, 0, wrong + u64::from(count), 1, 40);
        let (end, last) = read_new(&env, &[3], &facts());
        let error = end.unwrap_err();
        assert!(error.is_corruption() && error.to_string().contains("expected 3"), "{error}");
        assert_eq!(last, 2);
    }
}

#[test]
fn logs_of_another_database_are_damage() {
    let env = written(&sample(300));
    let mut other = facts();
    other.database = DatabaseIdentity { id: 1, epoch: 1 };
    let error = read_new(&env, &[3, 4, 6], &other).0.unwrap_err();
    assert!(error.is_corruption(), "{error}");
}

#[test]
fn the_durable_watermark_waits_for_a_record() {
    let env = MemEnv::new();
    let mut log3 = create(&env, 3, &start(0, 0, 0));
    let (mut tail, mut reader) = (tail_of(&env, &facts()), Reader::default());
    let mut read = |tail: &mut LogTail, logs: &[u64], facts: &ManifestFacts| {
        assert_eq!(reader.read(tail, logs, facts).unwrap(), TailEnd::UpToDate);
        tail.synced_through
    };
    put(&mut log3, 0, 1, 2, 40);
    put(&mut log3, 0, 3, 1, 40);
    assert_eq!(read(&mut tail, &[3], &facts()), 0);
    put(&mut log3, 3, 4, 1, 40);
    assert_eq!(read(&mut tail, &[3], &facts()), 3);
    put(&mut log3, 3, 5, 3, 40);
    create(&env, 4, &start(4, 3, 7));
    assert_eq!(read(&mut tail, &[3, 4], &facts()), 4);
    // Power was lost, and the writes that were not synced with it.
    env.remove_file(&path_of(4));
    let mut log8 = create(&env, 8, &WalStart { first_sequence: 9, ..start(4, 3, 4) });
    let watermark = |facts: &ManifestFacts| {
        let mut tail = tail_of(&env, facts);
        let end = Reader::default().read(&mut tail, &[3, 8], facts);
        assert_eq!(end.unwrap(), TailEnd::UpToDate);
        tail.synced_through
    };
    assert_eq!(watermark(&facts()), 4);
    put(&mut log8, 4, 9, 1, 40);
    put(&mut log8, 9, 10, 1, 40);
    assert_eq!(watermark(&facts()), 9);
    assert_eq!(watermark(&ManifestFacts { synced_through: 10, ..facts() }), 10);
}

#[test]
fn a_reading_costs_the_appended_bytes() {
    let memory = MemEnv::new();
    let mut wal = create(&memory, 3, &start(0, 0, 0));
    for sequence in 1..200 {
        put(&mut wal, 0, sequence, 1, 50_000);
    }
    let env = CountingEnv::new(Arc::new(memory));
    let mut tail = tail_over(Arc::new(env.clone()), &facts());
    let mut reader = Reader::default();
    reader.read(&mut tail, &[3], &facts()).unwrap();
    for sequence in 200..250 {
        put(&mut wal, 0, sequence, 1, 100);
        let before = env.counts();
        reader.read(&mut tail, &[3], &facts()).unwrap();
        let after = env.counts();
        assert_eq!(reader.last(), sequence);
        // A window to find the end, and one for the page.
        let bytes = after.read_bytes - before.read_bytes;
        assert!(bytes <= 2 << 20 && after.read_calls - before.read_calls <= 2, "{bytes}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Readings at any moments of a history with any batches, syncs and switches.
    #[test]
    fn any_moments_read_one_history(
        steps in prop::collection::vec((0..6u8, 0..4000usize), 1..60),
        reads in prop::collection::vec(any::<bool>(), 60),
    ) {
        let env = MemEnv::new();
        let mut wal = create(&env, 3, &start(0, 0, 0));
        let (mut logs, mut next, mut synced) = (vec![3], 1, 0);
        let (mut tail, mut reader) = (tail_of(&env, &facts()), Reader::default());
        for ((step, bytes), reads) in steps.into_iter().zip(reads) {
            match step {
                0 => {
                    wal.sync().unwrap();
                    synced = next - 1;
                }
                1 => {
                    let previous = logs[logs.len() - 1];
                    wal = create(&env, previous + 1, &start(synced, previous, next - 1));
                    logs.push(previous + 1);
                }
                count => {
                    put(&mut wal, synced, next, u32::from(count), bytes * bytes / 400);
                    next += u64::from(count);
                }
            }
            if reads {
                let end = reader.read(&mut tail, &logs, &facts()).unwrap();
                prop_assert_eq!(end, TailEnd::UpToDate);
                prop_assert_eq!(reader.last(), next - 1);
                prop_assert!(tail.synced_through <= synced);
            }
        }
        let (end, last) = read_new(&env, &logs, &facts());
        prop_assert_eq!((end.unwrap(), last), (TailEnd::UpToDate, next - 1));
    }
}
