//! Tests of rescues: the entries that are kept of damaged tables, compared with the blocks that the
//! damage did not touch.

use crate::base::error::{Error, Result};
use crate::base::iterator::api::Direction;
use crate::base::key::{SEQUENCE_MAX, ValueKind, put_internal_key};
use crate::base::sync::Arc;
use crate::env::api::Env;
use crate::env::counting::CountingEnv;
use crate::table::block::block::Block;
use crate::table::block::block::BlockKeys;
use crate::table::block::cursor::BlockCursor;
use crate::table::builder::TableOptions;
use crate::table::compression::Compression;
use crate::table::compression::tests::available;
use crate::table::file::TableIo;
use crate::table::format::{
    BlockHandle, BlockIdentity, BlockKind, Codec, FOOTER_BYTES, HEADER_BYTES, Header,
};
use crate::table::reader::Expect;
use crate::table::salvage::{Expected, LostBlock, Salvaged, salvage};
use crate::table::tests::{
    Entries, PATH, TABLE_ID, bytes_of, filters, new_env, open, options, small_entries,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use std::ops::Range;
use std::path::Path;

/// A table of many blocks, and where each data block is with its prefix and trailer.
struct Sample {
    bytes: Vec<u8>,
    entries: Entries,
    blocks: Vec<(Range<usize>, Entries)>,
}

fn sample(filter: usize, compression: Compression) -> Sample {
    let filter = filters().swap_remove(filter);
    let options = TableOptions { block_bytes: 200, compression, ..options(filter) };
    let entries = small_entries();
    let bytes = bytes_of(&options, &entries);
    let table = open(&bytes, Expect::default(), true).unwrap();
    let io = &mut TableIo::default();
    let (index, _) = table.index.read(&table.file, io).unwrap();
    let blocks = (0..index.len()).map(|i| {
        let handle = index.handle(i).unwrap();
        let contents = table.file.read_raw(handle, BlockKind::Data, io).unwrap();
        let place = handle.start().unwrap() as usize..handle.end().unwrap() as usize;
        (place, entries_of(&contents))
    });
    let blocks: Vec<_> = blocks.collect();
    assert!(blocks.len() > 6);
    Sample { bytes, entries, blocks }
}

fn entries_of(contents: &[u8]) -> Entries {
    let block = Block::new(contents, BlockKeys::Internal).unwrap();
    let mut cursor = BlockCursor::new(Direction::Forward);
    let mut entries = Entries::new();
    cursor.seek(&block, None);
    while cursor.valid() {
        entries.push((cursor.key().to_vec(), cursor.value(&block).to_vec()));
        cursor.next(&block);
    }
    entries
}

fn expected(table_id: Option<u64>, entries: Option<usize>) -> Expected {
    let range_deletes = table_id.map(|_| 0);
    let (sequences, entries) = (0..=SEQUENCE_MAX, entries.map(|n| n as u64));
    Expected { table_id, sequences, global_sequence: None, entries, range_deletes }
}

pub(super) fn salvaged(bytes: &[u8], expected: &Expected) -> Result<(Entries, Salvaged)> {
    let env = new_env();
    env.write_file(Path::new(PATH), bytes);
    salvaged_from(Arc::new(env), expected)
}

fn salvaged_from(env: Arc<dyn Env>, expected: &Expected) -> Result<(Entries, Salvaged)> {
    let mut kept = Entries::new();
    let salvaged = salvage(&env, Path::new(PATH), expected, &mut |key, value| {
        kept.push((key.to_vec(), value.to_vec()));
        Ok(())
    })?;
    assert_eq!(salvaged.entries, kept.len() as u64);
    Ok((kept, salvaged))
}

impl Sample {
    /// The entries of the blocks of which `damaged` still has every byte.
    fn untouched(&self, damaged: &[u8]) -> Entries {
        let same =
            |place: &Range<usize>| damaged.get(place.clone()) == self.bytes.get(place.clone());
        let blocks = self.blocks.iter().filter(|(place, _)| same(place));
        blocks.flat_map(|(_, entries)| entries.clone()).collect()
    }

    /// Rescues with and without the knowledge of a manifest. All sound blocks are kept and nothing
    /// else, and the report names what is missing.
    fn check(&self, damaged: &[u8], case: &str) {
        let sound = self.untouched(damaged);
        let all = self.entries.len();
        let (kept, found) = salvaged(damaged, &expected(Some(TABLE_ID), Some(all))).unwrap();
        assert_eq!(kept, sound, "{case}");
        assert_eq!(found.lost.is_empty(), kept.len() == all, "{case}: {:?}", found.lost);
        for (from, to) in found.lost.iter().map(|lost| (&lost.from, &lost.to)) {
            let both = from.as_ref().zip(to.as_ref());
            assert!(both.is_none_or(|(from, to)| from <= to), "{case}");
        }
        let front = damaged.get(..HEADER_BYTES).unwrap_or_default();
        let tail = &damaged[damaged.len().saturating_sub(FOOTER_BYTES)..];
        let own = &self.bytes[self.bytes.len() - FOOTER_BYTES..];
        let named = front == &self.bytes[..HEADER_BYTES] || tail == own;
        match salvaged(damaged, &expected(None, None)) {
            Ok((kept, found)) => {
                assert!(named, "{case}");
                assert_eq!(kept, sound, "{case}");
                assert!(kept.len() == all || !found.lost.is_empty(), "{case}: a loss untold");
            }
            Err(error) => assert!(!named && error.is_corruption(), "{case}: {error}"),
        }
    }
}

#[test]
fn a_flipped_byte_costs_its_block_at_most() {
    for filter in [0, 1, 5, 9] {
        for compression in available() {
            let sample = sample(filter, compression);
            for at in 0..sample.bytes.len() {
                let mut damaged = sample.bytes.clone();
                damaged[at] ^= 1 << (at % 8);
                sample.check(&damaged, &format!("filter {filter}, byte {at}"));
            }
        }
    }
}

#[test]
fn cuts_keep_the_blocks_before_them() {
    let sample = sample(1, Compression::None);
    for len in 0..=sample.bytes.len() {
        sample.check(&sample.bytes[..len], &format!("cut at {len}"));
    }
}

#[test]
fn damage_after_the_data_costs_nothing() {
    for filter in [0, 1, 5, 9] {
        let sample = sample(filter, Compression::None);
        let data_end = sample.blocks.last().unwrap().0.end;
        let known = expected(Some(TABLE_ID), Some(sample.entries.len()));
        let mut cases = vec![[&sample.bytes[..], b"x"].concat(), sample.bytes[..data_end].to_vec()];
        for at in (data_end..sample.bytes.len()).step_by(7) {
            let mut damaged = sample.bytes.clone();
            damaged[at..].fill(0x55);
            cases.push(damaged);
        }
        for damaged in cases {
            let (kept, found) = salvaged(&damaged, &known).unwrap();
            assert!(kept == sample.entries && found.lost.is_empty(), "{:?}", found.lost);
        }
    }
}

/// A change to the bytes of a file.
#[derive(Clone, Debug)]
enum Damage {
    Flip(Index, u8),
    Fill(Index, usize, u8),
    Junk(Index, Vec<u8>),
    Copy(Index, Index, usize),
    Cut(Index),
    Append(Vec<u8>),
}

fn any_damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        (any::<Index>(), 1u8..).prop_map(|(at, bits)| Damage::Flip(at, bits)),
        (any::<Index>(), 1usize..600, any::<u8>()).prop_map(|(at, n, to)| Damage::Fill(at, n, to)),
        (any::<Index>(), vec(any::<u8>(), 1..300)).prop_map(|(at, junk)| Damage::Junk(at, junk)),
        (any::<Index>(), any::<Index>(), 1usize..900)
            .prop_map(|(from, to, n)| Damage::Copy(from, to, n)),
        any::<Index>().prop_map(Damage::Cut),
        vec(any::<u8>(), 1..80).prop_map(Damage::Append),
    ]
}

fn damage(bytes: &mut Vec<u8>, damage: &Damage) {
    let len = bytes.len();
    if len == 0 {
        return;
    }
    match damage {
        Damage::Flip(at, bits) => bytes[at.index(len)] ^= bits,
        Damage::Fill(at, n, with) => {
            let at = at.index(len);
            bytes[at..len.min(at + n)].fill(*with);
        }
        Damage::Junk(at, junk) => {
            let at = at.index(len);
            let n = junk.len().min(len - at);
            bytes[at..at + n].copy_from_slice(&junk[..n]);
        }
        Damage::Copy(from, to, n) => {
            let (from, to) = (from.index(len), to.index(len));
            let n = (*n).min(len - from.max(to));
            bytes.copy_within(from..from + n, to);
        }
        Damage::Cut(at) => bytes.truncate(at.index(len)),
        Damage::Append(junk) => bytes.extend_from_slice(junk),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn rescue_keeps_exactly_the_sound_blocks(
        damages in vec(any_damage(), 1..5),
        filter in 0usize..13,
        compression in proptest::sample::select(available()),
    ) {
        let sample = sample(filter, compression);
        let mut bytes = sample.bytes.clone();
        for one in &damages {
            damage(&mut bytes, one);
        }
        sample.check(&bytes, &format!("{damages:?}"));
    }
}

#[test]
fn rescue_needs_a_known_table_id() {
    let sample = sample(1, Compression::None);
    let mut damaged = sample.bytes.clone();
    damaged[20] ^= 1;
    sample.check(&damaged, "header");
    let footer = damaged.len() - 1;
    damaged[footer] ^= 1;
    sample.check(&damaged, "header and footer");
    let error = salvaged(&damaged, &expected(None, None)).unwrap_err();
    assert!(error.is_corruption() && error.to_string().contains(PATH), "{error}");
    // A file with the contents of another table.
    let error = salvaged(&sample.bytes, &expected(Some(1), None)).unwrap_err();
    assert!(matches!(error, Error::Corruption { .. }), "{error}");
}

/// A file of data blocks with these contents, one after the other, under valid checksums.
fn forged(blocks: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Header { version: 1, table_id: TABLE_ID, keyspace: 0 }.encode();
    for contents in blocks {
        let offset = bytes.len() as u64 + 8;
        let identity = BlockIdentity { table_id: TABLE_ID, offset, kind: BlockKind::Data };
        bytes.extend_from_slice(&identity.prefix(contents.len() as u32));
        bytes.extend_from_slice(contents);
        bytes.extend_from_slice(&identity.trailer(contents, Codec::None));
    }
    bytes
}

#[test]
fn doubled_and_misplaced_blocks_are_refused() {
    let sample = sample(0, Compression::None);
    let contents = |i: usize| {
        let place = &sample.blocks[i].0;
        sample.bytes[place.start + 8..place.end - 5].to_vec()
    };
    let entries = |order: &[usize]| -> Entries {
        order.iter().flat_map(|i| sample.blocks[*i].1.clone()).collect()
    };
    for (order, kept) in [
        (&[0, 1, 1, 2][..], &[0, 1, 2][..]),
        (&[0, 2, 1, 3], &[0, 2, 3]),
        (&[0, 1, 2, 0, 3], &[0, 1, 2, 3]),
    ] {
        let blocks: Vec<_> = order.iter().map(|i| contents(*i)).collect();
        let (found, salvaged) = salvaged(&forged(&blocks), &expected(None, None)).unwrap();
        assert_eq!(found, entries(kept), "{order:?}");
        let refused = salvaged.lost.iter().filter(|lost| lost.error.to_string().contains("order"));
        assert_eq!(refused.count(), 1, "{order:?}: {:?}", salvaged.lost);
    }
    // Sequences below or above those of the table.
    let narrow = Expected { sequences: 10..=200, ..expected(Some(TABLE_ID), None) };
    let (found, salvaged) = salvaged(&sample.bytes, &narrow).unwrap();
    assert!(!found.is_empty() && found.len() < sample.entries.len());
    let reasons = ["older or newer", "without a sequence"];
    let is_told = |lost: &LostBlock| reasons.iter().any(|why| lost.error.to_string().contains(why));
    assert!(salvaged.lost.iter().all(is_told));
}

#[test]
fn a_rescue_reads_each_byte_few_times() {
    let mut entries = Entries::new();
    for i in 0..4000u64 {
        let mut key = Vec::new();
        put_internal_key(&mut key, format!("{i:06}").as_bytes(), i, ValueKind::Put);
        entries.push((key, vec![i as u8; 100]));
    }
    let mut bytes = bytes_of(&options(None), &entries);
    let len = bytes.len();
    assert!(len > 400_000);
    bytes[1000..200_000].fill(1);
    // Valid prefixes of invalid blocks, each of which reaches far over the next.
    for at in (200_000..300_000).step_by(16) {
        let offset = at as u64 + 8;
        let identity = BlockIdentity { table_id: TABLE_ID, offset, kind: BlockKind::Data };
        bytes[at..at + 8].copy_from_slice(&identity.prefix(100_000));
    }
    let env = new_env();
    env.write_file(Path::new(PATH), &bytes);
    let counting = CountingEnv::new(Arc::new(env));
    let (kept, found) =
        salvaged_from(Arc::new(counting.clone()), &expected(Some(TABLE_ID), None)).unwrap();
    assert!(!kept.is_empty() && !found.lost.is_empty());
    assert!(
        counting.counts().read_bytes < 3 * len as u64,
        "{} bytes read",
        counting.counts().read_bytes
    );
}

#[test]
fn block_handles_start_after_the_header() {
    let sample = sample(1, Compression::None);
    assert_eq!(sample.blocks[0].0.start, HEADER_BYTES);
    let handle = BlockHandle { offset: HEADER_BYTES as u64 + 8, size: 1 };
    assert_eq!(handle.data_offset(), 0, "the first data block is at 0, as in LevelDB");
}
