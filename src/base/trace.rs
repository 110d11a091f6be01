//! Spans of the crate `tracing` around what takes long: with the feature of that name. Without it
//! [`span!`] compiles to nothing.
//!
//! A span is entered where it is made, and left when it is dropped, on the same thread. Each has
//! the field `directory`, so that the databases of a process can be told apart.

#[cfg(feature = "tracing")]
use tracing::span::EnteredSpan;

/// A span that is entered until it is dropped.
#[cfg(feature = "tracing")]
pub(crate) struct Span(EnteredSpan);

/// A span without `tracing`: nothing.
#[cfg(not(feature = "tracing"))]
pub(crate) struct Span;

#[cfg(feature = "tracing")]
impl Span {
    /// Enters `span`.
    pub(crate) fn enter(span: tracing::Span) -> Self {
        Span(span.entered())
    }

    /// Sets a field that was left open.
    pub(crate) fn record(&self, field: &'static str, value: u64) {
        self.0.record(field, value);
    }
}

#[cfg(not(feature = "tracing"))]
impl Span {
    /// Does nothing.
    pub(crate) fn record(&self, _field: &'static str, _value: u64) {}
}

/// `span!("name", directory)` is a [`Span`]. Further fields follow as `field = value`, and after a
/// semicolon the names of those that [`Span::record`] sets later. The caller imports both.
#[cfg(feature = "tracing")]
macro_rules! span {
    ($name:literal, $directory:expr $(, $field:ident = $value:expr)* $(; $($later:ident),+)?) => {
        Span::enter(tracing::info_span!(
            target: "siftdb",
            $name,
            directory = %$directory.display(),
            $($field = $value,)*
            $($($later = tracing::field::Empty,)+)?
        ))
    };
}

/// Without `tracing` no field is evaluated.
#[cfg(not(feature = "tracing"))]
macro_rules! span {
    ($($fields:tt)*) => {
        Span
    };
}

pub(crate) use span;
