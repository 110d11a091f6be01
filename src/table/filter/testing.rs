//! For tests of the layouts: a table file that holds only a filter, and a filter policy.

use crate::base::coding::{Decoder, put_length_prefixed};
use crate::base::error::Result;
use crate::cache::cache::Cache;
use crate::env::handle::{FileHandle, FilePool};
use crate::env::mem::MemEnv;
use crate::table::file::TableFile;
use crate::table::filter::layout::BlockSink;
use crate::table::format::{
    BLOCK_PREFIX_BYTES, BlockHandle, BlockIdentity, BlockKind, Codec, FOOTER_BYTES,
};
use siftdb_filter::policy::FilterPolicy;
use std::path::Path;
use std::sync::Arc;

/// A policy that keeps the keys themselves; "deny" is denied.
#[derive(Debug)]
pub(crate) struct Exact;

impl FilterPolicy for Exact {
    fn name(&self) -> &str {
        "test.Exact"
    }

    fn create_filter(&self, keys: &[&[u8]], dst: &mut Vec<u8>) {
        assert!(keys.is_sorted(), "what point 4 of the contract promises");
        keys.iter().for_each(|key| put_length_prefixed(dst, key));
    }

    fn key_may_match(&self, key: &[u8], filter: &[u8]) -> bool {
        let mut decoder = Decoder::new(filter);
        key != b"deny"
            && std::iter::from_fn(|| decoder.length_prefixed()).any(|member| member == key)
    }
}

const TABLE_ID: u64 = 77;

/// Collects blocks as a table builder would write them, from offset `start` on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sink {
    pub bytes: Vec<u8>,
    pub blocks: Vec<(BlockHandle, Vec<u8>)>,
}

impl Sink {
    pub(crate) fn starting_at(start: usize) -> Self {
        Sink { bytes: vec![0; start], blocks: Vec::new() }
    }

    /// The blocks as a file, read through a cache of their own.
    pub(crate) fn file(&self, index_key_is_user_key: bool) -> TableFile {
        let mut bytes = self.bytes.clone();
        bytes.resize(bytes.len() + FOOTER_BYTES, 0);
        let env = MemEnv::new();
        let path = Path::new("/7.sst");
        env.write_file(path, &bytes);
        let pool = FilePool::new(Arc::new(env), 8);
        let handle = FileHandle::new(&pool, path.to_path_buf());
        let cache = Cache::new(1 << 20, 0.5);
        let mut file = TableFile::new(handle, TABLE_ID, bytes.len() as u64, &cache);
        file.index_key_is_user_key = index_key_is_user_key;
        file
    }
}

impl BlockSink for Sink {
    fn write_raw(&mut self, contents: &[u8], kind: BlockKind) -> Result<BlockHandle> {
        let offset = (self.bytes.len() + BLOCK_PREFIX_BYTES) as u64;
        let place = BlockIdentity { table_id: TABLE_ID, offset, kind };
        let handle = BlockHandle { offset, size: contents.len() as u64 };
        self.bytes.extend_from_slice(&place.prefix(contents.len() as u32));
        self.bytes.extend_from_slice(contents);
        self.bytes.extend_from_slice(&place.trailer(contents, Codec::None));
        self.blocks.push((handle, contents.to_vec()));
        Ok(handle)
    }
}
