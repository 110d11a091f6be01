//! LevelDB: Debian's library, through the C interface that it exports (`leveldb/c.h`).
//!
//! Compaction cannot be turned off, so there are fewer files at level 0 than elsewhere, and many
//! reads of one file start a compaction of it. A flush is asked for by compacting a range above
//! all keys, which writes the memtable first and then finds nothing to compact.
#![allow(unsafe_code)]

use crate::engine::{
    BITS_PER_KEY, BLOCK_BYTES, Each, Engine, Layout, Reader, Result, Settings, Store,
    WRITE_BUFFER_BYTES,
};
use crate::workload::Batch;
use std::ffi::{CStr, CString, c_char, c_int, c_uchar, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{null, null_mut};

pub const ENGINE: Engine = Engine {
    name: "leveldb",
    version,
    layouts: &[Layout::Own, Layout::NoFilter],
    log_structured: true,
    level0_files: 4,
    compression: Some("Snappy"),
    maps_files: true,
    separates_values: false,
    settings: "own layout: block-based filters in memory; 4 files at levels 0 to 2 in the level-0 \
               phase, compacted while it runs; reads do not verify checksums, its default",
    open,
    open_transactions: None,
};

/// Longer and larger than every key.
const ABOVE_ALL_KEYS: [u8; 128] = [0xff; 128];

/// Declares opaque types of the C interface.
macro_rules! opaque {
    ($($name:ident)*) => { $(#[repr(C)] struct $name([u8; 0]);)* };
}

opaque! { Database Options ReadOptions WriteOptions WriteBatch Iter Cache FilterPolicy }

#[link(name = "leveldb")]
unsafe extern "C" {
    fn leveldb_major_version() -> c_int;
    fn leveldb_minor_version() -> c_int;
    fn leveldb_free(pointer: *mut c_void);
    fn leveldb_open(o: *const Options, name: *const c_char, e: *mut *mut c_char) -> *mut Database;
    fn leveldb_close(d: *mut Database);
    fn leveldb_put(
        d: *mut Database,
        o: *const WriteOptions,
        key: *const u8,
        key_bytes: usize,
        value: *const u8,
        value_bytes: usize,
        e: *mut *mut c_char,
    );
    fn leveldb_write(
        d: *mut Database,
        o: *const WriteOptions,
        b: *mut WriteBatch,
        e: *mut *mut c_char,
    );
    fn leveldb_get(
        d: *mut Database,
        o: *const ReadOptions,
        key: *const u8,
        key_bytes: usize,
        value_bytes: *mut usize,
        e: *mut *mut c_char,
    ) -> *mut u8;
    fn leveldb_compact_range(
        d: *mut Database,
        start: *const u8,
        start_bytes: usize,
        limit: *const u8,
        limit_bytes: usize,
    );
    fn leveldb_create_iterator(d: *mut Database, o: *const ReadOptions) -> *mut Iter;
    fn leveldb_iter_destroy(i: *mut Iter);
    fn leveldb_iter_valid(i: *const Iter) -> c_uchar;
    fn leveldb_iter_seek(i: *mut Iter, key: *const u8, key_bytes: usize);
    fn leveldb_iter_next(i: *mut Iter);
    fn leveldb_iter_key(i: *const Iter, key_bytes: *mut usize) -> *const u8;
    fn leveldb_iter_value(i: *const Iter, value_bytes: *mut usize) -> *const u8;
    fn leveldb_iter_get_error(i: *const Iter, e: *mut *mut c_char);
    fn leveldb_writebatch_create() -> *mut WriteBatch;
    fn leveldb_writebatch_destroy(b: *mut WriteBatch);
    fn leveldb_writebatch_put(
        b: *mut WriteBatch,
        key: *const u8,
        key_bytes: usize,
        value: *const u8,
        value_bytes: usize,
    );
    fn leveldb_options_create() -> *mut Options;
    fn leveldb_options_destroy(o: *mut Options);
    fn leveldb_options_set_create_if_missing(o: *mut Options, yes: c_uchar);
    fn leveldb_options_set_write_buffer_size(o: *mut Options, bytes: usize);
    fn leveldb_options_set_block_size(o: *mut Options, bytes: usize);
    fn leveldb_options_set_compression(o: *mut Options, compression: c_int);
    fn leveldb_options_set_cache(o: *mut Options, c: *mut Cache);
    fn leveldb_options_set_filter_policy(o: *mut Options, f: *mut FilterPolicy);
    fn leveldb_cache_create_lru(bytes: usize) -> *mut Cache;
    fn leveldb_cache_destroy(c: *mut Cache);
    fn leveldb_filterpolicy_create_bloom(bits_per_key: c_int) -> *mut FilterPolicy;
    fn leveldb_filterpolicy_destroy(f: *mut FilterPolicy);
    fn leveldb_readoptions_create() -> *mut ReadOptions;
    fn leveldb_readoptions_destroy(o: *mut ReadOptions);
    fn leveldb_writeoptions_create() -> *mut WriteOptions;
    fn leveldb_writeoptions_destroy(o: *mut WriteOptions);
    fn leveldb_writeoptions_set_sync(o: *mut WriteOptions, yes: c_uchar);
}

fn version() -> String {
    // SAFETY: both take nothing and return a number.
    let (major, minor) = unsafe { (leveldb_major_version(), leveldb_minor_version()) };
    format!("{major}.{minor} (the system's library)")
}

/// Runs `call` with a pointer for an error; returns the error that the call stored there.
fn checked<T>(call: impl FnOnce(*mut *mut c_char) -> T) -> Result<T> {
    let mut error: *mut c_char = null_mut();
    let answer = call(&raw mut error);
    if error.is_null() {
        return Ok(answer);
    }
    // SAFETY: the library left a text of its own, ended by 0, which we free and nobody else.
    unsafe {
        let text = CStr::from_ptr(error).to_string_lossy().into_owned();
        leveldb_free(error.cast());
        Err(text.into())
    }
}

fn open(directory: &Path, settings: &Settings) -> Result<Box<dyn Store>> {
    let name = CString::new(directory.as_os_str().as_bytes())?;
    let cache_bytes = usize::try_from(settings.cache_bytes)?;
    // SAFETY: every pointer is the library's own and not null; what was created is destroyed
    // once, by `Leveldb::drop`, after the database that uses it.
    unsafe {
        let mut store = Leveldb {
            database: null_mut(),
            options: leveldb_options_create(),
            cache: leveldb_cache_create_lru(cache_bytes),
            filter: match settings.layout {
                Layout::NoFilter => null_mut(),
                _ => leveldb_filterpolicy_create_bloom(c_int::from(BITS_PER_KEY)),
            },
            read: leveldb_readoptions_create(),
            write: leveldb_writeoptions_create(),
            write_durably: leveldb_writeoptions_create(),
        };
        leveldb_options_set_create_if_missing(store.options, 1);
        leveldb_options_set_write_buffer_size(store.options, WRITE_BUFFER_BYTES);
        leveldb_options_set_block_size(store.options, BLOCK_BYTES);
        leveldb_options_set_compression(store.options, c_int::from(settings.compression));
        leveldb_options_set_cache(store.options, store.cache);
        if !store.filter.is_null() {
            leveldb_options_set_filter_policy(store.options, store.filter);
        }
        leveldb_writeoptions_set_sync(store.write_durably, 1);
        store.database = checked(|error| leveldb_open(store.options, name.as_ptr(), error))?;
        Ok(Box::new(store))
    }
}

struct Leveldb {
    database: *mut Database,
    options: *mut Options,
    cache: *mut Cache,
    filter: *mut FilterPolicy,
    read: *mut ReadOptions,
    write: *mut WriteOptions,
    write_durably: *mut WriteOptions,
}

// SAFETY: LevelDB's database may be used by several threads at once; the options are only read.
unsafe impl Sync for Leveldb {}

impl Drop for Leveldb {
    fn drop(&mut self) {
        // SAFETY: each was created once and is destroyed once, the database before what it uses.
        unsafe {
            if !self.database.is_null() {
                leveldb_close(self.database);
            }
            leveldb_options_destroy(self.options);
            leveldb_cache_destroy(self.cache);
            if !self.filter.is_null() {
                leveldb_filterpolicy_destroy(self.filter);
            }
            leveldb_readoptions_destroy(self.read);
            leveldb_writeoptions_destroy(self.write);
            leveldb_writeoptions_destroy(self.write_durably);
        }
    }
}

impl Store for Leveldb {
    fn put(&self, key: &[u8], value: &[u8], durable: bool) -> Result<()> {
        let options = if durable { self.write_durably } else { self.write };
        let (k, v) = (key.as_ptr(), value.as_ptr());
        // SAFETY: the database is open, and pointers and lengths are those of slices.
        checked(|error| unsafe {
            leveldb_put(self.database, options, k, key.len(), v, value.len(), error);
        })
    }

    fn write(&self, batch: &Batch<'_>) -> Result<()> {
        // SAFETY: the library copies the entries; the batch is destroyed once, at the end.
        unsafe {
            let writes = leveldb_writebatch_create();
            for (key, value) in batch.iter() {
                let (k, v) = (key.as_ptr(), value.as_ptr());
                leveldb_writebatch_put(writes, k, key.len(), v, value.len());
            }
            let done = checked(|error| leveldb_write(self.database, self.write, writes, error));
            leveldb_writebatch_destroy(writes);
            done
        }
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(LeveldbReader(self)))
    }

    fn flush(&self) -> Result<()> {
        let (key, bytes) = (ABOVE_ALL_KEYS.as_ptr(), ABOVE_ALL_KEYS.len());
        // SAFETY: the database is open, and pointer and length are those of an array.
        unsafe { leveldb_compact_range(self.database, key, bytes, key, bytes) };
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        // SAFETY: the database is open; two null pointers stand for all keys.
        unsafe { leveldb_compact_range(self.database, null(), 0, null(), 0) };
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

struct LeveldbReader<'a>(&'a Leveldb);

impl Reader for LeveldbReader<'_> {
    fn get(&mut self, key: &[u8]) -> Result<Option<u8>> {
        let store = self.0;
        let mut bytes = 0;
        // SAFETY: the database is open, and pointer and length are those of a slice; the value
        // is ours to read, to its length, and to free once.
        unsafe {
            let value = checked(|error| {
                let (k, length) = (key.as_ptr(), key.len());
                leveldb_get(store.database, store.read, k, length, &raw mut bytes, error)
            })?;
            if value.is_null() {
                return Ok(None);
            }
            let last = std::slice::from_raw_parts(value, bytes).last().copied();
            leveldb_free(value.cast());
            Ok(last)
        }
    }

    fn scan(&mut self, from: &[u8], count: usize, each: &mut Each<'_>) -> Result<()> {
        // SAFETY: the database outlives the iterator, which is destroyed once; key and value are
        // read before the iterator moves.
        unsafe {
            let entries = leveldb_create_iterator(self.0.database, self.0.read);
            leveldb_iter_seek(entries, from.as_ptr(), from.len());
            for _ in 0..count {
                if leveldb_iter_valid(entries) == 0 {
                    break;
                }
                let (mut key_bytes, mut value_bytes) = (0, 0);
                let key = leveldb_iter_key(entries, &raw mut key_bytes);
                let value = leveldb_iter_value(entries, &raw mut value_bytes);
                each(
                    std::slice::from_raw_parts(key, key_bytes),
                    std::slice::from_raw_parts(value, value_bytes),
                );
                leveldb_iter_next(entries);
            }
            let status = checked(|error| leveldb_iter_get_error(entries, error));
            leveldb_iter_destroy(entries);
            status?;
        }
        Ok(())
    }
}
