//! Keys and values with shapes that broke stores before.

use super::rng::Rng;

/// A set of distinct keys: empty, NUL, 0xff, long shared prefixes, numbers in both byte orders,
/// and plain words. About `count` keys, in no order.
pub fn odd_keys(count: usize, rng: &mut Rng) -> Vec<Vec<u8>> {
    let mut keys: Vec<Vec<u8>> = vec![
        b"".to_vec(),
        vec![0],
        vec![0, 0],
        vec![0xff],
        vec![0xff; 9],
        b"a".to_vec(),
        b"a\0".to_vec(),
        b"a\xff".to_vec(),
        vec![b'k'; 1000],
    ];
    for number in 0..count as u32 {
        keys.push(match number % 6 {
            0 => number.swap_bytes().to_le_bytes().to_vec(),
            1 => u64::from(number).to_le_bytes().to_vec(),
            2 => format!("user:{number:08}").into_bytes(),
            3 => format!("a/rather/long/path/that/many/keys/share/{}", number % 97).into_bytes(),
            4 => [vec![0xff; number as usize % 4], vec![number as u8]].concat(),
            _ => (0..1 + rng.below(12)).map(|_| b'a' + rng.below(3) as u8).collect(),
        });
    }
    keys.sort();
    keys.dedup();
    rng.shuffle(&mut keys);
    keys
}

/// `key-00000017`.
pub fn key(number: usize) -> Vec<u8> {
    format!("key-{number:08}").into_bytes()
}

/// A key that sorts between those of [`key`] and is none of them.
pub fn absent_key(number: usize) -> Vec<u8> {
    format!("key-{number:08}x").into_bytes()
}

/// A value of a size around the limits where values change their representation, different for
/// each `number`.
pub fn value(number: u64, rng: &mut Rng) -> Vec<u8> {
    let sizes = [0, 1, 8, 29, 30, 31, 100, 255, 256, 257, 700, 3000];
    let size = *rng.pick(&sizes);
    bytes(number, size)
}

/// `size` bytes, half of them compressible; from 8 bytes on, different for each `number`.
pub fn bytes(number: u64, size: usize) -> Vec<u8> {
    let mut rng = Rng::new(number);
    let mut bytes: Vec<u8> =
        (0..size).map(|at| if at % 2 == 0 { rng.next() as u8 } else { b'v' }).collect();
    let tag = number.to_le_bytes();
    let tagged = size.min(8);
    bytes[..tagged].copy_from_slice(&tag[..tagged]);
    bytes
}
