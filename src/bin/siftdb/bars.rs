//! Progress bars on standard error; nothing is drawn when that is not a terminal.
//!
//! `load` and `demo` use them. A bar is only ever told how much is done; whoever finishes it says
//! what is left in its place. Results never go through here: those are for standard output, and a
//! script that reads both streams sees no drawing.

use indicatif::{ProgressBar, ProgressStyle};

/// One line of progress.
pub struct Bar(ProgressBar);

impl Bar {
    /// Counts bytes, of a known total or not.
    pub fn bytes(name: &'static str, total: Option<u64>) -> Self {
        Bar::new(name, total, "{bytes}", "{bytes} of {total_bytes}")
    }

    /// Counts keys.
    pub fn keys(name: &'static str, total: u64) -> Self {
        Bar::new(name, Some(total), "{human_pos}", "{human_pos} of {human_len}")
    }

    fn new(name: &'static str, total: Option<u64>, count: &str, of: &str) -> Self {
        let (bar, template) = match total {
            Some(total) => {
                (ProgressBar::new(total), format!("  {{msg:<9}} {{bar:32}} {of}  {{eta}} left"))
            }
            None => (ProgressBar::new_spinner(), format!("  {{msg:<9}} {{spinner}} {count}")),
        };
        if let Ok(style) = ProgressStyle::with_template(&template) {
            bar.set_style(style);
        }
        Bar(bar.with_message(name))
    }

    /// More is done.
    pub fn add(&self, count: u64) {
        self.0.inc(count);
    }

    /// This much is done.
    pub fn set(&self, count: u64) {
        self.0.set_position(count);
    }

    /// Takes the bar away and leaves a line, if there was a bar to see.
    pub fn finish(&self, line: &str) {
        self.0.println(format!("  {:<9} {line}", self.0.message()));
        self.0.finish_and_clear();
    }
}
