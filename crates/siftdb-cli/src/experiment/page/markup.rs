//! Pieces of HTML that all pictures have.

use std::fmt::Write as _;

/// Colors of series in the style sheet; then they repeat, with other markers.
const SERIES_COLORS: usize = 6;

/// `text` as the content of an element or attribute. Control characters are not allowed in HTML.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(c),
            _ if c.is_control() => out.push('\u{fffd}'),
            _ => out.push(c),
        }
    }
    out
}

/// A share of a length in the style sheet.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.2}%", 100.0 * share)
}

/// The value of a `style` that gives an element the color of the series `n`.
pub(crate) fn series(n: usize) -> String {
    format!("--c:var(--series{})", n % SERIES_COLORS)
}

/// Names, each after its sample, which is an element with the given style.
pub(crate) fn legend<N: AsRef<str>>(
    items: impl IntoIterator<Item = (String, String, N)>,
) -> String {
    let mut out = String::from("<ul class=\"legend\">\n");
    for (style, sample, name) in items {
        let name = escaped(name.as_ref());
        let _ = writeln!(out, "<li style=\"{style}\">{sample}{name}</li>");
    }
    out + "</ul>\n"
}

/// A paragraph of less important text.
pub(crate) fn note(text: &str) -> String {
    format!("<p class=\"note\">{}</p>\n", escaped(text))
}

/// About how many letters wide the widest of these texts is, as a length in the style sheet.
pub(crate) fn widest<'t>(texts: impl IntoIterator<Item = &'t str>) -> String {
    let letters = texts.into_iter().map(|text| text.chars().count()).max().unwrap_or(0);
    format!("{letters}ch")
}
