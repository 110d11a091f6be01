//! Results of commands: structs whose comments are the help on their JSON.
//!
//! [`result!`] declares a struct that serializes to the JSON of a command. The comment above the
//! struct and those of its fields are what `siftdb COMMAND --help` and docs/json.md say about it,
//! so none of them can be forgotten.

use serde_json::Value;
use siftdb_cli::experiment::bench::KeyShape;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Fields of JSON that have one description.
pub struct Field {
    pub names: Vec<&'static str>,
    /// The lines of the comment above them.
    pub about: Vec<&'static str>,
    /// The fields of their type.
    pub inner: Vec<Field>,
}

/// A type of JSON, with a description if it is an object.
pub trait Described {
    /// The lines of the comment above the type.
    const HEAD: &'static [&'static str] = &[];

    /// The fields, in order.
    fn fields() -> Vec<Field> {
        Vec::new()
    }
}

macro_rules! plain {
    ($($type:ty),*) => { $(impl Described for $type {})* };
}
plain!(bool, u8, u32, u64, usize, f64, &'static str, String, PathBuf, Value, [u64; 2]);
plain!(BTreeSet<String>, KeyShape);

impl<T: Described> Described for Option<T> {
    fn fields() -> Vec<Field> {
        T::fields()
    }
}

impl<T: Described> Described for Vec<T> {
    fn fields() -> Vec<Field> {
        T::fields()
    }
}

/// Declares any number of types:
///
/// - `struct NAME { NAMES: TYPE; ... }` serializes to an object of these fields.
/// - `struct NAME of SOURCE: TYPE, ... { NAMES: TYPE = VALUE; ... }` has `NAME::of`, too, which
///   fills it. Fields without a value are copied from the first source, or from what follows
///   `=>`.
/// - `value NAME { NAMES; ... }` is a JSON value with these fields, made elsewhere.
macro_rules! result {
    () => {};
    (
        $(#[doc = $head:literal])*
        $vis:vis struct $name:ident of $first:ident: $from:ty $(, $more:ident: $other:ty)* {
            $($fields:tt)*
        }
        $($rest:tt)*
    ) => {
        $crate::described::result! {
            $(#[doc = $head])*
            $vis struct $name { $($fields)* }
            $($rest)*
        }
        impl $name {
            $vis fn of($first: $from $(, $more: $other)*) -> Self {
                $crate::described::result!(@fill $name $first $($fields)*)
            }
        }
    };
    (
        $(#[doc = $head:literal])*
        $vis:vis struct $name:ident {
            $($(#[doc = $about:literal])*
            $($(#[serde $serde:tt])? $field:ident),+: $type:ty
                $(= $value:expr)? $(=> $source:expr)?;)*
        }
        $($rest:tt)*
    ) => {
        $(#[doc = $head])*
        #[derive(Clone, Debug, PartialEq, serde::Serialize)]
        $vis struct $name {
            $($($(#[serde $serde])? $vis $field: $type,)+)*
        }
        $crate::described::result!(@described $name [$($head)*]
            $([$($field)+] [$($about)*] <$type as $crate::described::Described>::fields();)*);
        $crate::described::result! { $($rest)* }
    };
    (
        $(#[doc = $head:literal])*
        $vis:vis value $name:ident {
            $($(#[doc = $about:literal])* $($field:ident),+ $(: $type:ty)?;)*
        }
        $($rest:tt)*
    ) => {
        $(#[doc = $head])*
        #[derive(Clone, Debug, PartialEq, serde::Serialize)]
        #[allow(dead_code, reason = "some are only described")]
        $vis struct $name($vis serde_json::Value);
        $crate::described::result!(@described $name [$($head)*]
            $([$($field)+] [$($about)*] $crate::described::result!(@inner $($type)?);)*);
        $crate::described::result! { $($rest)* }
    };
    (@described $name:ident [$($head:literal)*]
        $([$($field:ident)+] [$($about:literal)*] $inner:expr;)*) => {
        impl $crate::described::Described for $name {
            const HEAD: &'static [&'static str] = &[$($head),*];
            fn fields() -> Vec<$crate::described::Field> {
                vec![$($crate::described::Field {
                    names: vec![$(stringify!($field)),+],
                    about: vec![$($about),*],
                    inner: $inner,
                }),*]
            }
        }
    };
    (@inner) => { Vec::new() };
    (@inner $type:ty) => { <$type as $crate::described::Described>::fields() };
    (
        @fill $name:ident $first:ident
        $($(#[doc = $about:literal])*
        $($(#[serde $serde:tt])? $field:ident),+: $type:ty $(= $value:expr)? $(=> $source:expr)?;)*
    ) => {{
        $($crate::described::result!(@let $first [$($field)+] $($value)? $(=> $source)?);)*
        $name { $($($field,)+)* }
    }};
    (@let $first:ident [$($field:ident)+]) => {
        $(let $field = Clone::clone(&$first.$field);)+
    };
    (@let $first:ident [$field:ident] $value:expr) => {
        let $field = $value;
    };
    (@let $first:ident [$($field:ident)+] => $source:expr) => {
        $(let $field = Clone::clone(&$source.$field);)+
    };
}
pub(crate) use result;

/// The column of descriptions.
const ABOUT_COLUMN: usize = 20;

/// The help on the JSON of `T`, to be folded: the comment above it, then its fields.
pub fn help<T: Described>() -> String {
    let format = Field { names: vec!["format"], about: vec![" 1"], inner: Vec::new() };
    let is_named = T::HEAD.last().is_some_and(|last| last.ends_with(':'));
    let head = if is_named { "" } else { "JSON fields:\n" };
    format!("{}{head}{}{}", lines(T::HEAD), rows(&[format], 2), rows(&T::fields(), 2))
}

/// The same of another form of an object.
pub fn more_help<T: Described>() -> String {
    lines(T::HEAD) + &rows(&T::fields(), 2)
}

/// The lines of a comment.
pub fn lines(comment: &[&str]) -> String {
    comment.iter().map(|line| format!("{}\n", line.strip_prefix(' ').unwrap_or(line))).collect()
}

/// A line for each description, with all fields since the one before. One that ends in a colon is
/// followed by the fields of the type. A type without a description is a part of the object itself.
pub fn rows(fields: &[Field], indent: usize) -> String {
    let (mut text, mut undescribed) = (String::new(), Vec::new());
    for Field { names, about, inner } in fields {
        match (about.last(), inner.is_empty()) {
            (None, false) => text.push_str(&rows(inner, indent)),
            (None, true) => undescribed.extend(names),
            (Some(last), _) => {
                undescribed.extend(names);
                text.push_str(&row(&std::mem::take(&mut undescribed), about, indent));
                if last.ends_with(':') {
                    text.push_str(&rows(inner, indent + 2));
                }
            }
        }
    }
    text
}

fn row(names: &[&str], about: &[&str], indent: usize) -> String {
    let (names, about) = (names.join(", "), about.concat());
    let width = ABOUT_COLUMN - 2 - indent;
    // A longer list of names needs a gap that can be seen.
    let gap = if names.len() > width { "  " } else { " " };
    format!("{:indent$}{names:<width$}{gap}{about}\n", "")
}
