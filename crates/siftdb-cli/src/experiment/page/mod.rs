//! A page: figures as one HTML file that loads nothing, and as JSON and CSV.
//!
//! `page` is what a command fills in, with its forms as data. `html` writes the document, `chart`
//! and `drawing` its pictures. The browser and the style sheet lay them out: positions are per
//! cent, so one picture fits every window, and texts wrap by themselves.

mod html;
mod chart;
mod drawing;
mod axis;
mod markup;
pub(crate) mod page;

#[cfg(test)]
mod tests;
