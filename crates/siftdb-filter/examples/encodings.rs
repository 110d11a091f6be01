//! The size and the false-positive rate of each encoding, for a hundred thousand keys.

use siftdb_filter::{BuildError, Encoding, FilterReader, KeyHash, PreparedFilter};

fn key(i: u32) -> String {
    format!("user{i:06}")
}

fn main() -> Result<(), BuildError> {
    for encoding in Encoding::built_in(10_000) {
        let mut builder = encoding.builder();
        for i in 0..100_000 {
            builder.add_key(key(i).as_bytes());
        }
        let mut bytes = Vec::new();
        builder.finish(&mut bytes)?;

        // A table stores the bytes and this name. A reader needs nothing else.
        let name = encoding.full_name();
        let reader = FilterReader::for_name(&name, &[]).expect("a built-in name");
        let filter = PreparedFilter::new(reader, &bytes);
        let passes = |i: &u32| filter.may_contain(&KeyHash::new(key(*i).as_bytes()));
        assert!((0..100_000).all(|i| passes(&i)), "no filter denies a member");
        let wrong = (100_000..200_000).filter(passes).count();

        let label = encoding.label();
        println!("{label:<16} {:>7} bytes, {:.2} % pass", bytes.len(), wrong as f64 / 1_000.0);
    }
    Ok(())
}
