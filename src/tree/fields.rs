//! The fields of the manifest's records: tags and bytes of a given length.
//!
//! ```text
//! field := tag: u8  length: varint  bytes
//! ```
//!
//! Tags with the bit 0x80 may be skipped by a reader that does not know them; any other unknown
//! tag is `UnsupportedFormat`.
//!
//! [`record!`] declares a record with all its fields in one table: the field of the struct, its
//! tag, and its name in errors. The table's order is that of writing; reading takes any order. The
//! type says how often a field may be there: an `Option` at most once, a `Vec` any number of times,
//! any other type exactly once. [`Value`] is how one value becomes bytes. So a new field is a line
//! in a table, and a new type of value an `impl`.

use crate::base::coding::{Decoder, put_length_prefixed, put_u64, put_varint};
use crate::log::record::format::Undecodable;
use std::collections::BTreeMap;
use std::fmt;

/// A reader skips an unknown tag that has this bit.
pub(crate) const IGNORABLE: u8 = 0x80;

/// What was decoded, or why it was not.
pub(crate) type Decoded<T> = Result<T, Undecodable>;

/// Bytes that siftdb does not write.
pub(crate) fn damaged(what: &str) -> Undecodable {
    Undecodable::Damaged(what.into())
}

/// The error of a field that does not hold what its tag says.
pub(crate) fn malformed(name: &str) -> Undecodable {
    damaged(&format!("a malformed {name}"))
}

/// A value in the bytes of a field.
pub(crate) trait Value: Sized {
    /// Appends its bytes.
    fn put(&self, dst: &mut Vec<u8>);

    /// Takes it from the front of `bytes`. `name` is the field's, for the error.
    fn take(bytes: &mut Decoder<'_>, name: &str) -> Decoded<Self>;
}

/// Integers are varints.
macro_rules! varint_values {
    ($($Integer:ty),*) => {$(
        impl Value for $Integer {
            fn put(&self, dst: &mut Vec<u8>) {
                put_varint(dst, *self as u64);
            }

            fn take(bytes: &mut Decoder<'_>, name: &str) -> Decoded<Self> {
                let number = bytes.varint().and_then(|number| number.try_into().ok());
                number.ok_or_else(|| malformed(name))
            }
        }
    )*};
}
varint_values!(u32, u64, usize);

/// The varint 0 or 1.
impl Value for bool {
    fn put(&self, dst: &mut Vec<u8>) {
        put_varint(dst, u64::from(*self));
    }

    fn take(bytes: &mut Decoder<'_>, name: &str) -> Decoded<Self> {
        match u64::take(bytes, name)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(malformed(name)),
        }
    }
}

/// An integer of 8 bytes.
pub(crate) struct Fixed64(pub u64);

impl Value for Fixed64 {
    fn put(&self, dst: &mut Vec<u8>) {
        put_u64(dst, self.0);
    }

    fn take(bytes: &mut Decoder<'_>, name: &str) -> Decoded<Self> {
        bytes.u64().map(Fixed64).ok_or_else(|| malformed(name))
    }
}

/// 16 bytes.
impl Value for u128 {
    fn put(&self, dst: &mut Vec<u8>) {
        dst.extend_from_slice(&self.to_le_bytes());
    }

    fn take(bytes: &mut Decoder<'_>, name: &str) -> Decoded<Self> {
        let id = bytes.bytes(16).and_then(|id| id.try_into().ok());
        id.map(u128::from_le_bytes).ok_or_else(|| malformed(name))
    }
}

/// All bytes that are left.
impl Value for Vec<u8> {
    fn put(&self, dst: &mut Vec<u8>) {
        dst.extend_from_slice(self);
    }

    fn take(bytes: &mut Decoder<'_>, _: &str) -> Decoded<Self> {
        let rest = bytes.bytes(bytes.rest().len());
        Ok(rest.unwrap_or_default().to_vec())
    }
}

/// All bytes that are left, in UTF-8.
impl Value for String {
    fn put(&self, dst: &mut Vec<u8>) {
        dst.extend_from_slice(self.as_bytes());
    }

    fn take(bytes: &mut Decoder<'_>, name: &str) -> Decoded<Self> {
        String::from_utf8(Vec::take(bytes, name)?).map_err(|_| malformed(name))
    }
}

/// As what is in it.
impl<T: Value> Value for Box<T> {
    fn put(&self, dst: &mut Vec<u8>) {
        (**self).put(dst);
    }

    fn take(bytes: &mut Decoder<'_>, name: &str) -> Decoded<Self> {
        T::take(bytes, name).map(Box::new)
    }
}

impl<A: Value, B: Value> Value for (A, B) {
    fn put(&self, dst: &mut Vec<u8>) {
        self.0.put(dst);
        self.1.put(dst);
    }

    fn take(bytes: &mut Decoder<'_>, name: &str) -> Decoded<Self> {
        Ok((A::take(bytes, name)?, B::take(bytes, name)?))
    }
}

/// Makes a value of a struct: its fields one after the other.
macro_rules! value {
    ($Value:ident { $($field:ident),* }) => {
        impl $crate::tree::fields::Value for $Value {
            fn put(&self, dst: &mut Vec<u8>) {
                $($crate::tree::fields::Value::put(&self.$field, dst);)*
            }

            fn take(
                bytes: &mut $crate::base::coding::Decoder<'_>,
                name: &str,
            ) -> $crate::tree::fields::Decoded<Self> {
                Ok($Value { $($field: $crate::tree::fields::Value::take(bytes, name)?),* })
            }
        }
    };
}
pub(crate) use value;

/// The type of a record's field. The compiler infers `Times`, since each type has one of them only.
pub(crate) trait Slot<Times>: Sized {
    /// The field of a record that does not have it; `None` if that is damage.
    fn absent() -> Option<Self>;

    /// Appends it, as often as it is there.
    fn put(&self, tag: u8, dst: &mut Vec<u8>);

    /// Adds one more occurrence with these bytes to those that were read.
    fn read(slot: &mut Option<Self>, bytes: &[u8], name: &str) -> Decoded<()>;
}

pub(crate) enum Once {}
pub(crate) enum AtMostOnce {}
pub(crate) enum AnyTimes {}

impl<T: Value> Slot<Once> for T {
    fn absent() -> Option<Self> {
        None
    }

    fn put(&self, tag: u8, dst: &mut Vec<u8>) {
        put_value(dst, tag, self);
    }

    fn read(slot: &mut Option<Self>, bytes: &[u8], name: &str) -> Decoded<()> {
        once(slot.replace(take_all(bytes, name)?), name)
    }
}

impl<T: Value> Slot<AtMostOnce> for Option<T> {
    fn absent() -> Option<Self> {
        Some(None)
    }

    fn put(&self, tag: u8, dst: &mut Vec<u8>) {
        self.iter().for_each(|value| put_value(dst, tag, value));
    }

    fn read(slot: &mut Option<Self>, bytes: &[u8], name: &str) -> Decoded<()> {
        once(slot.replace(Some(take_all(bytes, name)?)), name)
    }
}

impl<T: Value> Slot<AnyTimes> for Vec<T> {
    fn absent() -> Option<Self> {
        Some(Vec::new())
    }

    fn put(&self, tag: u8, dst: &mut Vec<u8>) {
        self.iter().for_each(|value| put_value(dst, tag, value));
    }

    fn read(slot: &mut Option<Self>, bytes: &[u8], name: &str) -> Decoded<()> {
        slot.get_or_insert_default().push(take_all(bytes, name)?);
        Ok(())
    }
}

/// Each key once.
impl<K: Value + Ord + Copy + fmt::Display, V: Value> Slot<AnyTimes> for BTreeMap<K, V> {
    fn absent() -> Option<Self> {
        Some(BTreeMap::new())
    }

    fn put(&self, tag: u8, dst: &mut Vec<u8>) {
        for (key, value) in self {
            let mut bytes = Vec::new();
            key.put(&mut bytes);
            value.put(&mut bytes);
            put_field(dst, tag, &bytes);
        }
    }

    fn read(slot: &mut Option<Self>, bytes: &[u8], name: &str) -> Decoded<()> {
        let (key, value): (K, V) = take_all(bytes, name)?;
        once(slot.get_or_insert_default().insert(key, value), &format!("{name} of {key}"))
    }
}

pub(crate) fn put_field(dst: &mut Vec<u8>, tag: u8, bytes: &[u8]) {
    dst.push(tag);
    put_length_prefixed(dst, bytes);
}

/// Appends a field of one value.
pub(crate) fn put_value(dst: &mut Vec<u8>, tag: u8, value: &impl Value) {
    let mut bytes = Vec::new();
    value.put(&mut bytes);
    put_field(dst, tag, &bytes);
}

/// The next tag with its bytes, `None` at the end. `of` names the whole in the error.
pub(crate) fn next_field<'a>(
    fields: &mut Decoder<'a>,
    of: &str,
) -> Decoded<Option<(u8, &'a [u8])>> {
    let Some(tag) = fields.u8() else {
        return Ok(None);
    };
    match fields.length_prefixed() {
        Some(value) => Ok(Some((tag, value))),
        None => Err(damaged(&format!("field {tag} of {of} is cut off"))),
    }
}

/// The value of a field, which all of its bytes are.
fn take_all<T: Value>(bytes: &[u8], name: &str) -> Decoded<T> {
    let mut bytes = Decoder::new(bytes);
    let value = T::take(&mut bytes, name)?;
    if bytes.is_empty() { Ok(value) } else { Err(malformed(name)) }
}

fn once<T>(earlier: Option<T>, name: &str) -> Decoded<()> {
    match earlier {
        None => Ok(()),
        Some(_) => Err(damaged(&format!("the {name} is given twice"))),
    }
}

/// Passes over a tag that a record does not know, or refuses it.
pub(crate) fn unknown_field(tag: u8, of: &str) -> Decoded<()> {
    match tag & IGNORABLE {
        0 => Err(Undecodable::Unknown(format!("{of} with field {tag}"))),
        _ => Ok(()),
    }
}

/// A field that was read, or what its absence means.
pub(crate) fn finished<T: Slot<Times>, Times>(
    slot: Option<T>,
    absent: Option<T>,
    [of, name]: [&str; 2],
) -> Decoded<T> {
    let slot = slot.or(absent).or_else(T::absent);
    slot.ok_or_else(|| damaged(&format!("{of} without its {name}")))
}

/// Declares a struct with the table of its fields; the text after its name is the record's in
/// errors.
///
/// `= TAG "NAME"` makes a field of the struct one of the record. `as WIRE` writes it as this type,
/// which has it as field 0. `or DEFAULT` leaves the field out of the bytes where it has this value.
/// A field of the struct without a tag is not in the bytes and becomes its type's default.
macro_rules! record {
    (
        $(#[$meta:meta])*
        $vis:vis struct $Record:ident: $of:literal {
            $(
                $(#[$field_meta:meta])*
                $field_vis:vis $field:ident: $type:ty
                    $(= $tag:literal $name:literal $(as $wire:ident)? $(or $default:expr)?)?,
            )*
        }
    ) => {
        $(#[$meta])*
        $vis struct $Record {
            $($(#[$field_meta])* $field_vis $field: $type,)*
        }

        impl $Record {
            pub(crate) fn put_fields(&self, dst: &mut Vec<u8>) {
                $($(if true $(&& self.$field != $default)? {
                    $crate::tree::fields::Slot::put(
                        $crate::tree::fields::record!(@put self.$field $(, $wire)?),
                        $tag,
                        dst,
                    );
                })?)*
            }

            /// Takes all `bytes` as its fields.
            pub(crate) fn take_fields(bytes: &[u8]) -> $crate::tree::fields::Decoded<Self> {
                use $crate::tree::fields::{Slot, next_field, record, unknown_field};
                $(#[allow(unused_mut)] let mut $field = None;)*
                let mut fields = $crate::base::coding::Decoder::new(bytes);
                while let Some((tag, bytes)) = next_field(&mut fields, $of)? {
                    match tag {
                        $($($tag => {
                            <record!(@type $type $(, $wire)?) as Slot<_>>::read(
                                &mut $field,
                                bytes,
                                $name,
                            )?
                        })?)*
                        tag => unknown_field(tag, $of)?,
                    }
                }
                Ok($Record {
                    $($field: record!(
                        @finish $field, $type $(, $of, $name $(, as $wire)? $(, or $default)?)?
                    ),)*
                })
            }
        }
    };
    (@put $value:expr) => { &$value };
    (@put $value:expr, $wire:ident) => { &$wire($value) };
    (@type $type:ty) => { $type };
    (@type $type:ty, $wire:ident) => { $wire };
    (@finish $field:ident, $type:ty) => { $field.unwrap_or_else(<$type>::default) };
    (@finish $field:ident, $type:ty, $of:literal, $name:literal) => {
        $crate::tree::fields::finished($field, None, [$of, $name])?
    };
    (@finish $field:ident, $type:ty, $of:literal, $name:literal, as $wire:ident) => {
        $crate::tree::fields::finished::<$wire, _>($field, None, [$of, $name])?.0
    };
    (@finish $field:ident, $type:ty, $of:literal, $name:literal, or $default:expr) => {
        $crate::tree::fields::finished($field, Some($default), [$of, $name])?
    };
}
pub(crate) use record;
