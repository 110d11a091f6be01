//! Pictures without an axis: boxes in lines, and steps from top to bottom.

use crate::experiment::figure::{Cell, Figure, Picture};
use crate::experiment::page::markup::{escaped, legend, note, percent, widest};
use std::fmt::Write as _;

/// Lanes of one group from which on boxes are flat and without labels.
const FLAT_LANES: usize = 9;

/// Boxes of one group that do not overlap, each with the shares at which it begins and ends.
type Lane<'a> = Vec<(&'a Vec<Cell>, (f64, f64))>;

/// The boxes of a group in as few lanes as are needed: those that overlap are in different ones.
fn lanes<'a>(figure: &Figure, ends: (usize, usize), rows: &[&'a Vec<Cell>]) -> Vec<Lane<'a>> {
    let share = |row: &Vec<Cell>, column| figure.number(row, column).unwrap_or(0.0).clamp(0.0, 1.0);
    let mut lanes: Vec<Lane<'a>> = Vec::new();
    for row in rows {
        let (from, to) = (share(row, ends.0), share(row, ends.1));
        let is_free = |lane: &&mut Lane<'a>| {
            lane.iter().all(|(_, (other_from, other_to))| *other_to <= from || to <= *other_from)
        };
        match lanes.iter_mut().find(is_free) {
            Some(lane) => lane.push((row, (from, to))),
            None => lanes.push(vec![(row, (from, to))]),
        }
    }
    lanes
}

/// The boxes of a figure with a picture of them.
pub(crate) fn boxes(figure: &Figure) -> String {
    let Picture::Boxes { group, label, ends, shade } = figure.picture else {
        return String::new();
    };
    let groups = figure.groups(group).into_iter();
    let groups: Vec<_> = groups.map(|(name, rows)| (name, lanes(figure, ends, &rows))).collect();
    let most = groups.iter().map(|(_, lanes)| lanes.len()).max().unwrap_or(0);
    let darkest = shade.into_iter().flat_map(|column| figure.numbers(column)).fold(0.0, f64::max);
    let opacity = |row: &Vec<Cell>| match shade.map(|column| figure.number(row, column)) {
        None => 0.3,
        // The lightest shade is for no number at all.
        Some(None) => 0.0,
        Some(Some(_)) if darkest <= 0.0 => 0.08,
        Some(Some(share)) => 0.08 + 0.47 * (share / darkest).clamp(0.0, 1.0),
    };
    let shaded = shade.map_or(String::new(), |column| format!("; shade: {}", figure.label(column)));
    let mut out = note(&format!("left to right: keys in their order{shaded}"));
    if let Some(column) = shade {
        let most = figure.unit(column).print(darkest);
        let samples = [(0.0, "none"), (0.08, "few"), (0.55, &most)];
        out += &legend(samples.map(|(opacity, text)| {
            (String::new(), format!("<i style=\"--o:{}\"></i>", percent(opacity)), text)
        }));
    }
    let class = if most >= FLAT_LANES { "lane flat" } else { "lane" };
    for (name, lanes) in &groups {
        let _ = writeln!(out, "<p>{}</p>", escaped(name));
        for lane in lanes {
            let _ = writeln!(out, "<div class=\"{class}\">");
            for (row, (from, to)) in lane {
                let [left, width] = [*from, (to - from).max(0.0)].map(percent);
                let (shade, label) = (percent(opacity(row)), escaped(&figure.text(row, label)));
                let _ = writeln!(
                    out,
                    "<i style=\"left:{left};width:{width};--o:{shade}\"><span>{label}</span></i>"
                );
            }
            out += "</div>\n";
        }
    }
    out
}

/// The steps of a figure with a picture of them.
pub(crate) fn steps(figure: &Figure) -> String {
    let Picture::Steps { what, answer, place, read } = figure.picture else {
        return String::new();
    };
    let samples = [("read", "read from a file"), ("memory", "in memory")];
    let mut out = legend(
        samples.map(|(class, text)| (String::new(), format!("<b class=\"{class}\"></b>"), text)),
    );
    let asked: Vec<String> = figure.rows.iter().map(|row| figure.text(row, what)).collect();
    let asked = widest(asked.iter().map(String::as_str));
    for (name, rows) in figure.groups(place) {
        let _ = writeln!(
            out,
            "<div class=\"place\" style=\"--asked:min({asked}, 45%)\">\n<p>{}</p>\n<ol>",
            escaped(&name)
        );
        for row in rows {
            let class = match figure.number(row, read) {
                Some(bytes) if bytes > 0.0 => "read",
                Some(_) => "memory",
                None => "untouched",
            };
            let [what, answer] = [what, answer].map(|column| escaped(&figure.text(row, column)));
            let _ = writeln!(
                out,
                "<li><b class=\"{class}\"></b><span>{what}</span><span>{answer}</span></li>"
            );
        }
        out += "</ol>\n</div>\n";
    }
    out
}
