//! Keys made of numbers, strings and tuples, whose bytes sort as the values do.
//!
//! The database sorts keys by their bytes. [`encode`] turns a value into bytes of the same order,
//! and [`decode`] turns them back:
//!
//! ```
//! use siftdb::keys;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let db = siftdb::Db::open(directory.path().join("db"))?;
//! db.put(keys::encode(&(7u64, "2024-05-01")), "login")?;
//! db.put(keys::encode(&(7u64, "2024-06-30")), "logout")?;
//! db.put(keys::encode(&(300u64, "2024-01-01")), "login")?;
//!
//! // All keys of user 7: the first parts of a tuple are a prefix of the whole.
//! for entry in db.prefix(keys::encode(&(7u64,))) {
//!     let (key, value) = entry?;
//!     let (user, day) = keys::decode::<(u64, String)>(&key)?;
//!     println!("{user} {day} {value:?}");
//! }
//! # assert_eq!(db.prefix(keys::encode(&(7u64,))).count(), 2);
//! # Ok(())
//! # }
//! ```
//!
//! # The bytes
//!
//! | type | bytes | example |
//! |---|---|---|
//! | `u8` to `u128` | all bytes of the number, the highest first | `258u32` is `00 00 01 02` |
//! | `i8` to `i128` | the same, with the highest bit flipped | `-1i16` is `7f ff` |
//! | `bool` | `00` for false, `01` for true | `true` is `01` |
//! | `str`, `String` | UTF-8, each `00` as `00 ff`; then `00 01` | `"a\0"` is `61 00 ff 00 01` |
//! | `[u8]`, `Vec<u8>`, `[u8; N]` | the same of any bytes | `[1, 0]` is `01 00 ff 00 01` |
//! | tuples of 1 to 8 | their parts, one after the other | `(1u8, "a")` is `01 61 00 01` |
//!
//! Three rules hold for every type:
//!
//! - **Order.** `encode(a) < encode(b)` exactly if `a < b`. Tuples sort by their first part, then
//!   by their second, and so on.
//! - **Round trip.** `decode(encode(a))` is `a`, and no other bytes decode to `a`.
//! - **Prefix.** No encoding of a type is the beginning of another one of that type. So the
//!   encoding of `(a,)` is a prefix of the encodings of exactly those `(x, …)` with `x == a`.
//!
//! The bytes do not name their type: decode a key as the type that it was encoded from. The types
//! `usize` and `isize` are left out, because their sizes differ between platforms.
//!
//! The idea of tuples as ordered keys is known from the tuple layer of FoundationDB; the encoding
//! here is another one.

use std::fmt;

/// Second byte of a zero byte in a string. The first one is `00`.
const ESCAPED_ZERO: u8 = 0xff;

/// Second byte of the end of a string. The first one is `00`.
// Below `ESCAPED_ZERO`, so a string sorts before its extension by a zero byte; and not 0, so a run
// of zeros in a damaged key is no string.
const END: u8 = 0x01;

/// A value with an encoding that sorts like the value.
///
/// An implementation for a type of your own calls those of its parts, in the order in which the
/// type compares them:
///
/// ```
/// use siftdb::keys::{self, DecodeError, DecodeKey, EncodeKey, KeyDecoder};
///
/// #[derive(Debug, PartialEq)]
/// struct UserId(u64);
///
/// impl EncodeKey for UserId {
///     fn encode_to(&self, key: &mut Vec<u8>) {
///         self.0.encode_to(key);
///     }
/// }
///
/// impl DecodeKey for UserId {
///     fn decode_from(key: &mut KeyDecoder<'_>) -> Result<Self, DecodeError> {
///         u64::decode_from(key).map(UserId)
///     }
/// }
///
/// let key = keys::encode(&(UserId(7), "name"));
/// assert_eq!(keys::decode(&key), Ok((UserId(7), "name".to_string())));
/// ```
pub trait EncodeKey {
    /// Appends the encoding to `key`.
    fn encode_to(&self, key: &mut Vec<u8>);
}

/// A value that can be decoded from a key.
pub trait DecodeKey: Sized {
    /// Decodes the next part of `key`.
    ///
    /// # Errors
    /// The bytes are no encoding of this type.
    fn decode_from(key: &mut KeyDecoder<'_>) -> Result<Self, DecodeError>;
}

/// The encoding of a value.
#[must_use]
pub fn encode<T: EncodeKey + ?Sized>(value: &T) -> Vec<u8> {
    let mut key = Vec::new();
    value.encode_to(&mut key);
    key
}

/// The value whose encoding `key` is.
///
/// # Errors
/// `key` is not, or not as a whole, the encoding of a value of this type. No bytes cause a panic.
pub fn decode<T: DecodeKey>(key: &[u8]) -> Result<T, DecodeError> {
    let mut decoder = KeyDecoder { key, at: 0 };
    let value = T::decode_from(&mut decoder)?;
    match decoder.rest().len() {
        0 => Ok(value),
        bytes => Err(DecodeError::TrailingBytes { at: decoder.at, bytes }),
    }
}

/// A key that is decoded part by part: see [`DecodeKey`].
#[derive(Clone, Debug)]
pub struct KeyDecoder<'a> {
    key: &'a [u8],
    /// Where the next part begins.
    at: usize,
}

impl<'a> KeyDecoder<'a> {
    fn rest(&self) -> &'a [u8] {
        self.key.get(self.at..).unwrap_or_default()
    }

    /// The next `N` bytes, the highest first, as a little-endian number has them.
    fn number<const N: usize>(&mut self, expected: &'static str) -> Result<[u8; N], DecodeError> {
        let bytes = self.rest().first_chunk::<N>();
        let mut bytes = *bytes.ok_or(DecodeError::TooShort { at: self.at, expected })?;
        bytes.reverse();
        self.at += N;
        Ok(bytes)
    }

    /// The next byte string.
    fn bytes(&mut self) -> Result<Vec<u8>, DecodeError> {
        let mut found = Vec::new();
        let mut rest = self.rest();
        loop {
            let zero = rest.iter().position(|&byte| byte == 0).unwrap_or(rest.len());
            let (plain, escape) = rest.split_at(zero);
            found.extend_from_slice(plain);
            rest = match *escape {
                [_, ESCAPED_ZERO, ref rest @ ..] => rest,
                [_, END, ref rest @ ..] => {
                    self.at = self.key.len() - rest.len();
                    return Ok(found);
                }
                [_, byte, ..] => {
                    let at = self.key.len() - escape.len() + 1;
                    return Err(DecodeError::UnknownEscape { at, byte });
                }
                [] | [_] => {
                    return Err(DecodeError::TooShort { at: self.at, expected: "a string" });
                }
            };
            found.push(0);
        }
    }
}

/// Bytes that are no encoding of the type they were decoded as. `at` counts bytes from the start of
/// the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// The key ends within a part.
    TooShort {
        /// Where the part begins.
        at: usize,
        /// The type of the part.
        expected: &'static str,
    },
    /// A `bool` has a byte other than `00` and `01`.
    NotBool {
        /// Where the byte is.
        at: usize,
        /// The byte that is there.
        byte: u8,
    },
    /// A zero byte in a string is followed by a byte other than `ff` and `01`.
    UnknownEscape {
        /// Where the second byte is.
        at: usize,
        /// The byte after the zero byte.
        byte: u8,
    },
    /// A string is not UTF-8.
    NotUtf8 {
        /// Where the string begins.
        at: usize,
    },
    /// A byte string does not have the length of the array.
    WrongLength {
        /// Where the byte string begins.
        at: usize,
        /// The length of the array.
        expected: usize,
        /// The length of the byte string.
        found: usize,
    },
    /// There are bytes after the last part.
    TrailingBytes {
        /// Where the surplus bytes begin.
        at: usize,
        /// How many there are.
        bytes: usize,
    },
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::TooShort { at, expected } => {
                write!(f, "the key ends within the part at byte {at}, expected {expected}")
            }
            DecodeError::NotBool { at, byte } => {
                write!(f, "byte {at} of the key is {byte:02x}, expected 00 or 01 for a bool")
            }
            DecodeError::UnknownEscape { at, byte } => write!(
                f,
                "byte {at} of the key is {byte:02x}, expected ff or 01 after the zero of a string"
            ),
            DecodeError::NotUtf8 { at } => {
                write!(f, "the string at byte {at} of the key is not UTF-8")
            }
            DecodeError::WrongLength { at, expected, found } => write!(
                f,
                "the byte string at byte {at} of the key has {found} bytes, expected {expected}"
            ),
            DecodeError::TrailingBytes { at, bytes } => {
                write!(f, "the key has {bytes} bytes after its last part, from byte {at} on")
            }
        }?;
        f.write_str("; decode a key as the type that it was encoded from")
    }
}

impl std::error::Error for DecodeError {}

macro_rules! unsigned {
    ($($number:ident)*) => {$(
        impl EncodeKey for $number {
            fn encode_to(&self, key: &mut Vec<u8>) {
                key.extend(self.to_le_bytes().iter().rev());
            }
        }

        impl DecodeKey for $number {
            fn decode_from(key: &mut KeyDecoder<'_>) -> Result<Self, DecodeError> {
                key.number(stringify!($number)).map($number::from_le_bytes)
            }
        }
    )*};
}

unsigned!(u8 u16 u32 u64 u128);

/// With the highest bit flipped, the smallest number is all zeros.
macro_rules! signed {
    ($($number:ident)*) => {$(
        impl EncodeKey for $number {
            fn encode_to(&self, key: &mut Vec<u8>) {
                (self ^ $number::MIN).cast_unsigned().encode_to(key);
            }
        }

        impl DecodeKey for $number {
            fn decode_from(key: &mut KeyDecoder<'_>) -> Result<Self, DecodeError> {
                let flipped = key.number(stringify!($number)).map($number::from_le_bytes)?;
                Ok(flipped ^ $number::MIN)
            }
        }
    )*};
}

signed!(i8 i16 i32 i64 i128);

impl EncodeKey for bool {
    fn encode_to(&self, key: &mut Vec<u8>) {
        key.push(u8::from(*self));
    }
}

impl DecodeKey for bool {
    fn decode_from(key: &mut KeyDecoder<'_>) -> Result<Self, DecodeError> {
        let at = key.at;
        match key.number("bool")? {
            [0] => Ok(false),
            [1] => Ok(true),
            [byte] => Err(DecodeError::NotBool { at, byte }),
        }
    }
}

impl EncodeKey for [u8] {
    fn encode_to(&self, key: &mut Vec<u8>) {
        let mut pieces = self.split(|&byte| byte == 0);
        key.extend_from_slice(pieces.next().unwrap_or_default());
        for piece in pieces {
            key.extend_from_slice(&[0, ESCAPED_ZERO]);
            key.extend_from_slice(piece);
        }
        key.extend_from_slice(&[0, END]);
    }
}

impl EncodeKey for str {
    fn encode_to(&self, key: &mut Vec<u8>) {
        self.as_bytes().encode_to(key);
    }
}

impl EncodeKey for Vec<u8> {
    fn encode_to(&self, key: &mut Vec<u8>) {
        self[..].encode_to(key);
    }
}

impl DecodeKey for Vec<u8> {
    fn decode_from(key: &mut KeyDecoder<'_>) -> Result<Self, DecodeError> {
        key.bytes()
    }
}

impl EncodeKey for String {
    fn encode_to(&self, key: &mut Vec<u8>) {
        self[..].encode_to(key);
    }
}

impl DecodeKey for String {
    fn decode_from(key: &mut KeyDecoder<'_>) -> Result<Self, DecodeError> {
        let at = key.at;
        String::from_utf8(key.bytes()?).map_err(|_| DecodeError::NotUtf8 { at })
    }
}

impl<const N: usize> EncodeKey for [u8; N] {
    fn encode_to(&self, key: &mut Vec<u8>) {
        self[..].encode_to(key);
    }
}

impl<const N: usize> DecodeKey for [u8; N] {
    fn decode_from(key: &mut KeyDecoder<'_>) -> Result<Self, DecodeError> {
        let at = key.at;
        let wrong =
            |found: Vec<u8>| DecodeError::WrongLength { at, expected: N, found: found.len() };
        key.bytes()?.try_into().map_err(wrong)
    }
}

impl<T: EncodeKey + ?Sized> EncodeKey for &T {
    fn encode_to(&self, key: &mut Vec<u8>) {
        (**self).encode_to(key);
    }
}

macro_rules! tuples {
    ($($($part:ident)*;)*) => {$(
        impl<$($part: EncodeKey),*> EncodeKey for ($($part,)*) {
            fn encode_to(&self, key: &mut Vec<u8>) {
                #[allow(non_snake_case)]
                let ($($part,)*) = self;
                $($part.encode_to(key);)*
            }
        }

        impl<$($part: DecodeKey),*> DecodeKey for ($($part,)*) {
            fn decode_from(key: &mut KeyDecoder<'_>) -> Result<Self, DecodeError> {
                // The fields of a tuple are evaluated from left to right.
                Ok(($($part::decode_from(key)?,)*))
            }
        }
    )*};
}

tuples! {
    A;
    A B;
    A B C;
    A B C D;
    A B C D E;
    A B C D E F;
    A B C D E F G;
    A B C D E F G H;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// Strings of the bytes that matter to escapes.
    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![Just(0u8), Just(1), Just(b'a'), Just(0xfe), Just(0xff), any::<u8>()];
        vec(byte, 0..6)
    }

    fn text() -> impl Strategy<Value = String> {
        let letter = prop_oneof![Just('\0'), Just('\x01'), Just('a'), Just('ÿ'), any::<char>()];
        vec(letter, 0..5).prop_map(|letters| letters.into_iter().collect())
    }

    /// Order kept both ways, and neither encoding a beginning of the other.
    fn check_pair<T: EncodeKey + Ord + fmt::Debug>(a: &T, b: &T) {
        let (key_a, key_b) = (encode(a), encode(b));
        assert_eq!(key_a.cmp(&key_b), a.cmp(b), "{a:?} {b:?}");
        assert_eq!(key_a.starts_with(&key_b), a == b, "{a:?} {b:?}");
    }

    fn check_round_trip<T: EncodeKey + DecodeKey + PartialEq + fmt::Debug>(value: &T) {
        let key = encode(value);
        assert_eq!(decode::<T>(&key).as_ref(), Ok(value));
        for len in 0..key.len() {
            assert!(decode::<T>(&key[..len]).is_err(), "{value:?} cut at {len}");
        }
        let longer = [&key[..], &[0]].concat();
        let expected = DecodeError::TrailingBytes { at: key.len(), bytes: 1 };
        assert_eq!(decode::<T>(&longer), Err(expected));
    }

    /// Decodes `key`, or fails; what decodes has no other encoding.
    fn check_any_bytes<T: EncodeKey + DecodeKey>(key: &[u8]) {
        if let Ok(value) = decode::<T>(key) {
            assert_eq!(encode(&value), key);
        }
    }

    /// The edges, and numbers near both of them and near zero.
    macro_rules! edges {
        ($number:ident) => {{
            let (zero, one) = (0 as $number, 1 as $number);
            let powers = (0..$number::BITS).map(|bit| one << bit);
            let near = powers.flat_map(|n| [n.wrapping_sub(one), n, zero.wrapping_sub(n)]);
            near.chain([zero, $number::MIN, $number::MAX]).collect::<Vec<$number>>()
        }};
    }

    #[test]
    fn numbers_sort_as_their_bytes() {
        macro_rules! check {
            ($($number:ident)*) => {$(
                let numbers = edges!($number);
                for a in &numbers {
                    check_round_trip(a);
                    numbers.iter().for_each(|b| check_pair(a, b));
                }
            )*};
        }
        check!(u8 u16 u32 u64 u128 i8 i16 i32 i64 i128);
    }

    #[test]
    fn golden_bytes_of_every_type() {
        fn check<T: EncodeKey + DecodeKey + PartialEq + fmt::Debug>(value: T, golden: &str) {
            let hex: Vec<_> = encode(&value).iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(hex.join(" "), golden, "{value:?}");
            check_round_trip(&value);
        }
        check(7u8, "07");
        check(258u16, "01 02");
        check(258u32, "00 00 01 02");
        check(u64::MAX - 1, "ff ff ff ff ff ff ff fe");
        check(1u128 << 120, "01 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00");
        check(-128i8, "00");
        check(-1i16, "7f ff");
        check(0i32, "80 00 00 00");
        check(-2i64, "7f ff ff ff ff ff ff fe");
        check(1i128, "80 00 00 00 00 00 00 00 00 00 00 00 00 00 00 01");
        check(false, "00");
        check(true, "01");
        check(String::new(), "00 01");
        check("a\0b".to_string(), "61 00 ff 62 00 01");
        check("é".to_string(), "c3 a9 00 01");
        check(vec![0u8, 0, 0xff], "00 ff 00 ff ff 00 01");
        check([1u8, 0], "01 00 ff 00 01");
        check((1u8, "a".to_string()), "01 61 00 01");
        check(((true,), (2u16, -1i8)), "01 00 02 7f");
        assert_eq!(encode(&(7u8, "a", &b"b"[..])), encode(&(7u8, "a".to_string(), b"b")));
    }

    #[test]
    fn strings_end_before_their_extensions() {
        let keys = ["", "\0", "\0\0", "\0\x01", "\x01", "a", "a\0", "a\0b", "a\x01", "ab", "b"];
        assert!(keys.map(encode).is_sorted_by(|a, b| a < b));
        // Whatever comes next in the tuple, the string decides.
        for pair in keys.windows(2) {
            assert!(encode(&(pair[0], u64::MAX)) < encode(&(pair[1], 0u64)), "{pair:?}");
        }
    }

    #[test]
    fn errors_say_what_is_where() {
        type Pair = (u8, String);
        let cases: [(DecodeError, &str); 6] = [
            (decode::<(u8, u32)>(&[1, 2, 3]).unwrap_err(), "part at byte 1, expected u32"),
            (decode::<(u8, bool)>(&[1, 2]).unwrap_err(), "byte 1 of the key is 02, expected 00"),
            (decode::<Pair>(&[1, b'a', 0, 7, 0, 1]).unwrap_err(), "byte 3 of the key is 07"),
            (decode::<Pair>(&[1, 0xff, 0, 1]).unwrap_err(), "string at byte 1 of the key is not"),
            (decode::<[u8; 2]>(&[1, 0, 1]).unwrap_err(), "at byte 0 of the key has 1 bytes"),
            (decode::<Pair>(&[1, 0, 1, 9, 9]).unwrap_err(), "2 bytes after its last part, from"),
        ];
        for (error, expected) in cases {
            let text = error.to_string();
            assert!(text.contains(expected), "{text}");
            assert!(text.ends_with("the type that it was encoded from"), "{text}");
        }
    }

    proptest! {
        #[test]
        fn keys_sort_as_their_values(
            a in (0u8..3, text(), -2i64..2, bytes(), any::<bool>(), any::<i16>()),
            b in (0u8..3, text(), -2i64..2, bytes(), any::<bool>(), any::<i16>()),
        ) {
            check_pair(&a, &b);
            check_pair(&a.1, &b.1);
            check_pair(&a.3, &b.3);
            check_pair(&(&a.1, a.0), &(&b.1, b.0));
            check_pair(&((&a.3, a.4), a.2), &((&b.3, b.4), b.2));
            check_round_trip(&a);
            check_round_trip(&((a.1, a.4), a.3));
        }

        #[test]
        fn first_parts_are_a_prefix(
            a in (bytes(), 0u8..2, text()),
            b in (bytes(), 0u8..2, text()),
        ) {
            let key = encode(&b);
            prop_assert_eq!(key.starts_with(&encode(&(&a.0,))), a.0 == b.0);
            let equal = (&a.0, a.1) == (&b.0, b.1);
            prop_assert_eq!(key.starts_with(&encode(&(&a.0, a.1))), equal);
        }

        #[test]
        fn any_bytes_decode_or_fail(key in prop_oneof![bytes(), vec(any::<u8>(), 0..40)]) {
            check_any_bytes::<String>(&key);
            check_any_bytes::<[u8; 3]>(&key);
            check_any_bytes::<(bool, u16, i8)>(&key);
            check_any_bytes::<(Vec<u8>, i64, String)>(&key);
            check_any_bytes::<(u8, (String, bool), u128)>(&key);
            check_any_bytes::<(u8, u8, u8, u8, i8, Vec<u8>, bool, String)>(&key);
        }
    }
}
