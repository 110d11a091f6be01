#![no_main]
libfuzzer_sys::fuzz_target!(|input: &[u8]| siftdb_fuzz::run("rocksdb_database", input));
