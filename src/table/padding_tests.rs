//! Tests of padding, the zeros that move a block to the next page: lookups, scans, `verify` and
//! salvage skip it, and `verify` finds other bytes in it.

use crate::base::error::Error;
use crate::base::iterator::api::Direction;
use crate::base::key::{ValueKind, put_internal_key};
use crate::table::builder::TableOptions;
use crate::table::features::PADDED_BLOCKS;
use crate::table::file::TableIo;
use crate::table::filter::layout::FilterLayout;
use crate::table::format::{
    BLOCK_PREFIX_BYTES, BLOCK_TRAILER_BYTES, BlockHandle, BlockIdentity, BlockKind, Codec,
    PAGE_BYTES, PROPERTIES_NAME, run_bytes,
};
use crate::table::reader::{Expect, TableReadOptions};
use crate::table::salvage::Expected;
use crate::table::salvage_tests::salvaged;
use crate::table::tests::{
    Entries, TABLE_ID, bytes_of, filters, model_get, multi_get, open, options, walk,
};
use std::ops::Range;

fn entries() -> Entries {
    let entry = |i: u64| {
        let mut key = Vec::new();
        put_internal_key(&mut key, format!("key{i:05}").as_bytes(), 1, ValueKind::Put);
        (key, vec![i as u8 | 1; 90 + i as usize % 7])
    };
    (0..2000).map(entry).collect()
}

fn sample_options() -> TableOptions {
    let partitioned = |layout| matches!(layout, FilterLayout::Partitioned { .. });
    let filter = filters().into_iter().flatten().find(|filter| partitioned(filter.layout));
    TableOptions { index_partition_bytes: 400, ..options(filter) }
}

/// The places of the data blocks, prefixes and trailers included, and of the zeros between them.
fn places(bytes: &[u8]) -> (Vec<Range<usize>>, Vec<Range<usize>>) {
    let table = open(bytes, Expect::default(), true).unwrap();
    let (index, _) = table.index.read(&table.file, &mut TableIo::default()).unwrap();
    let place =
        |handle: BlockHandle| handle.start().unwrap() as usize..handle.end().unwrap() as usize;
    let blocks: Vec<_> = index.handles().map(place).collect();
    let gaps = blocks.windows(2).map(|pair| pair[0].end..pair[1].start);
    let gaps = gaps.filter(|gap| !gap.is_empty()).collect();
    (blocks, gaps)
}

fn expected(entries: usize) -> Expected {
    Expected {
        table_id: Some(TABLE_ID),
        sequences: 0..=9,
        global_sequence: None,
        entries: Some(entries as u64),
        range_deletes: Some(0),
    }
}

#[test]
fn padded_tables_are_read_verified_and_salvaged() {
    let bytes = bytes_of(&sample_options(), &entries());
    let (blocks, gaps) = places(&bytes);
    assert!(gaps.len() > 40 && gaps.len() + 6 > blocks.len(), "{} of {}", gaps.len(), blocks.len());
    let table = open(&bytes, Expect::default(), true).unwrap();
    assert!(table.properties.requires(PADDED_BLOCKS));
    assert_eq!(table.footer.version, 2);
    assert_eq!(table.verify(&mut |_| {}).unwrap().entries, 2000);
    let keys: Vec<String> = (0..2100).map(|i| format!("key{i:05}")).collect();
    let keys: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
    for (key, found) in
        keys.iter().zip(multi_get(&table, &keys, 9, TableReadOptions::new()).unwrap())
    {
        assert_eq!(found.answer, model_get(&entries(), key, 9));
    }
    assert_eq!(walk(&table, Direction::Forward, None).unwrap(), entries());
    let backward: Entries = entries().into_iter().rev().collect();
    assert_eq!(walk(&table, Direction::Reverse, None).unwrap(), backward);
    let (kept, report) = salvaged(&bytes, &expected(2000)).unwrap();
    assert_eq!((kept, report.lost.len()), (entries(), 0));
    // Without a manifest, padding is no loss, either.
    let any = Expected { table_id: None, entries: None, range_deletes: None, ..expected(0) };
    let (kept, report) = salvaged(&bytes, &any).unwrap();
    assert_eq!((kept, report.lost.len()), (entries(), 0));
}

#[test]
fn bytes_in_padding_are_found() {
    let bytes = bytes_of(&sample_options(), &entries());
    let (_, gaps) = places(&bytes);
    for gap in gaps {
        for at in [gap.start, gap.end - 1] {
            let mut damaged = bytes.clone();
            damaged[at] = 1;
            let table = open(&damaged, Expect::default(), true).unwrap();
            let error = table.verify(&mut |_| {}).unwrap_err();
            let Error::Corruption { offset, .. } = error else { panic!("{error}") };
            assert_eq!(offset, gap.start as u64);
            let (kept, report) = salvaged(&damaged, &expected(2000)).unwrap();
            assert!(
                kept == entries() && report.lost.is_empty(),
                "byte {at}, {}: {:?}",
                kept.len(),
                report.lost
            );
        }
    }
}

/// Zeros between blocks are damage in a table that does not name the feature.
#[test]
fn only_padded_tables_may_have_gaps() {
    let mut bytes = bytes_of(&sample_options(), &entries());
    let table = open(&bytes, Expect::default(), true).unwrap();
    let (_, handle) =
        table.metaindex().unwrap().into_iter().find(|(name, _)| name == PROPERTIES_NAME).unwrap();
    let place = handle.offset as usize..(handle.offset + handle.size) as usize;
    let name = PADDED_BLOCKS.as_bytes();
    let at = bytes[place.clone()].windows(name.len()).position(|bytes| bytes == name).unwrap();
    bytes[place.start + at..][..name.len()].fill(b',');
    let identity =
        BlockIdentity { table_id: TABLE_ID, offset: handle.offset, kind: BlockKind::Properties };
    let trailer = identity.trailer(&bytes[place.clone()], Codec::None);
    bytes[place.end..][..trailer.len()].copy_from_slice(&trailer);
    let table = open(&bytes, Expect::default(), true).unwrap();
    let error = table.verify(&mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("should begin here"), "{error}");
}

/// Partitions that padding separates are still one run. Others with a gap are not.
#[test]
fn runs_go_across_padding() {
    let handle = |offset, size| BlockHandle { offset, size };
    let (trailer, prefix) = (BLOCK_TRAILER_BYTES as u64, BLOCK_PREFIX_BYTES as u64);
    let next = PAGE_BYTES * 3;
    for (end, is_run) in
        [(next - prefix, true), (next - 100, true), (next - PAGE_BYTES - prefix, false)]
    {
        let one = handle(end - trailer - 50, 50);
        let bytes = is_run.then_some(next + 10 + trailer - one.offset);
        assert_eq!(run_bytes(&[one, handle(next, 10)]), bytes, "{end}");
    }
    let one = handle(next + 100, 50);
    assert_eq!(
        run_bytes(&[one, handle(one.end().unwrap() + prefix, 10)]),
        Some(50 + 2 * trailer + prefix + 10)
    );
    assert_eq!(run_bytes(&[one, handle(one.end().unwrap() + prefix + 1, 10)]), None);
    assert_eq!(run_bytes(&[one, handle(one.offset, 10)]), None);
}
