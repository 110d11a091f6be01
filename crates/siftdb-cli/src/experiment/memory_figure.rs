//! The figure of a given memory: the pages that lookups read with the settings as they are, and
//! with others.

use crate::experiment::figure::{Figure, Picture, Unit, table};
use crate::memory_advice::{MemoryAdvice, PagesRead};
use siftdb::inspect::bytes;

/// The figure of an advice.
pub fn memory_figure(advice: &MemoryAdvice) -> Figure {
    let now = std::iter::once(("now", advice.pages));
    let changes = advice.changes.iter().map(|change| (change.setting.as_str(), change.pages));
    let rows: Vec<(&str, PagesRead)> = now.chain(changes).collect();
    let parts = advice.parts.iter().map(|part| {
        let (size, share) = (bytes(part.bytes), Unit::Share.print(part.in_memory));
        format!("{} {size}, found in memory {share}", part.name)
    });
    let parts: Vec<String> = parts.collect();
    let more = if advice.fits() { "" } else { ", and more, since filters and indexes do not fit" };
    Figure {
        id: "memory",
        title: "Pages that a lookup reads from the disk, by setting".into(),
        finding: format!(
            "The memory is {}; the block cache has {} of it. A lookup of an absent key reads {} \
             pages, one of a present key {}{more}: {}.",
            bytes(advice.memory_bytes),
            bytes(advice.cache_bytes),
            Unit::Number.print(advice.pages.absent),
            Unit::Number.print(advice.pages.present),
            parts.join("; ")
        ),
        picture: Picture::bars(&[1, 2]),
        ..table! { for (setting, pages) in rows;
            Unit::Text, "setting", "setting" => setting;
            Unit::Number, "pages_absent", "pages, absent key" => pages.absent;
            Unit::Number, "pages_present", "pages, present key" => pages.present;
        }
    }
}
