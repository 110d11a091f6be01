//! A page: figures as one HTML file that loads nothing, and as JSON and CSV.
//!
//! `page` is what a command fills in, with its forms as data. `html` writes the document, `chart`
//! and `drawing` its pictures, on the surface of `canvas`.

mod html;
mod chart;
mod drawing;
mod axis;
mod canvas;
pub(crate) mod page;

#[cfg(test)]
mod tests;
