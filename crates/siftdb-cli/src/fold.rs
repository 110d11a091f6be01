//! Folds text to the width of the terminal. Long lines continue under their description, and wide
//! tables are split into bands of columns.
//!
//! [`folded`] is for results and help on a terminal. A pipe gets whole lines. Entries are never
//! folded: a break in a value would not be one of its bytes.

use rustix::termios::tcgetwinsize;
use std::collections::VecDeque;
use std::ops::Range;

/// Columns where nobody says how many there are.
pub const COLUMNS: usize = 80;

/// Help is no wider: longer lines are hard to read.
pub const HELP_COLUMNS_MAX: usize = 100;

/// The columns of standard output: as `COLUMNS` says, else as the terminal says, else 80.
pub fn columns() -> usize {
    let named = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let terminal = || tcgetwinsize(std::io::stdout()).ok().map(|size| size.ws_col.into());
    named.or_else(terminal).filter(|columns| *columns > 0).unwrap_or(COLUMNS)
}

/// `text` in lines of at most `width` columns. A word that is longer stays whole.
pub fn folded(text: &str, width: usize) -> String {
    fold(text, width, false)
}

/// The same for help: the words that do not fit in a line begin the next line of its paragraph.
pub fn reflowed(text: &str, width: usize) -> String {
    fold(text, width, true)
}

fn fold(text: &str, width: usize, is_reflowed: bool) -> String {
    let mut lines: VecDeque<String> = text.split('\n').map(str::to_string).collect();
    let mut done: Vec<String> = Vec::new();
    let is_row = |line: &&String| line.trim_end().chars().count() > width && gaps(line) >= 2;
    // The indent at which the line before continued.
    let mut hang = 0;
    while let Some(line) = lines.front() {
        let rows: Vec<&String> = lines.iter().take_while(is_row).collect();
        let bands = if rows.len() < 2 { None } else { bands(&rows, width) };
        if let Some(bands) = bands {
            let rows = rows.len();
            lines.drain(..rows);
            done.extend(bands);
            continue;
        }
        let continues = lead(line) > 0 && lead(line) == hang && gaps(line) == 0;
        hang = if continues { lead(line) } else { hanging(line, width) };
        let mut pieces = pieces(line, hang, width);
        lines.pop_front();
        let next = lines
            .front_mut()
            .filter(|next| lead(next) == hang && gaps(next) == 0 && !next.trim().is_empty());
        if let (true, Some(next)) = (is_reflowed && pieces.len() > 1, next) {
            let rest = pieces.pop().unwrap_or_default();
            *next = format!("{} {}", rest.trim_end(), next.trim_start());
        }
        done.extend(pieces);
    }
    done.join("\n")
}

/// How many gaps of two spaces or more are between the words of `line`.
fn gaps(line: &str) -> usize {
    line.trim().split("  ").filter(|part| !part.trim().is_empty()).count().saturating_sub(1)
}

/// How many spaces `line` begins with.
fn lead(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

/// Where the continuation of `line` begins: under its description if it has one, else a bit further
/// than the line itself.
fn hanging(line: &str, width: usize) -> usize {
    let (lead, chars) = (lead(line), line.chars().collect::<Vec<_>>());
    let gap = chars.windows(2).enumerate().skip(lead).find(|(_, pair)| *pair == [' ', ' ']);
    let after = |gap: usize| gap + chars[gap..].iter().take_while(|c| **c == ' ').count();
    match gap.map(|(at, _)| after(at)) {
        Some(at) if at <= width / 2 => at,
        _ if lead > 0 => lead + 2,
        _ => 0,
    }
}

/// `line` in pieces of at most `width` columns, all but the first indented.
fn pieces(line: &str, indent: usize, width: usize) -> Vec<String> {
    let chars: Vec<char> = line.chars().collect();
    let spaces = |of: &[char]| of.iter().take_while(|c| **c == ' ').count();
    let (mut pieces, mut rest) = (Vec::new(), &chars[..]);
    let (mut start, mut room) = (indent.max(spaces(rest)), width);
    let begin = |pieces: &Vec<String>| " ".repeat(if pieces.is_empty() { 0 } else { indent });
    while rest.iter().collect::<String>().trim_end().chars().count() > room {
        // The last space that leaves a line short enough, else the first one after a long word.
        let short = (start + 1..=room.min(rest.len() - 1)).rev().find(|at| rest[*at] == ' ');
        let long = || (room.max(start)..rest.len()).find(|at| rest[*at] == ' ');
        let Some(cut) = short.or_else(long) else { break };
        let kept: String = rest[..cut].iter().collect();
        pieces.push(begin(&pieces) + kept.trim_end());
        rest = &rest[cut + spaces(&rest[cut..])..];
        (start, room) = (0, width.saturating_sub(indent).max(1));
    }
    let rest: String = rest.iter().collect();
    pieces.push(begin(&pieces) + &rest);
    pieces
}

/// The rows of a table in bands of columns, each with the first column. `None` if it has no
/// columns, or one that is too wide.
fn bands(rows: &[&String], width: usize) -> Option<Vec<String>> {
    let rows: Vec<Vec<char>> = rows.iter().map(|row| row.trim_end().chars().collect()).collect();
    let columns = columns_of(&rows);
    let (first, others) = columns.split_first()?;
    let is_too_wide = |column: &Range<usize>| first.end + column.len() > width;
    if others.is_empty() || others.iter().any(is_too_wide) {
        return None;
    }
    let (mut lines, mut left) = (Vec::new(), others);
    while !left.is_empty() {
        let mut used = first.end;
        let fits = |column: &&Range<usize>| {
            used += column.len();
            used <= width
        };
        let (band, after) = left.split_at(left.iter().take_while(fits).count());
        left = after;
        for row in &rows {
            let cells = std::iter::once(first).chain(band);
            let cell = |cell: &Range<usize>| row.get(cell.start..cell.end.min(row.len()));
            let line: String = cells.filter_map(cell).flatten().collect();
            lines.push(line.trim_end().to_string());
        }
    }
    Some(lines)
}

/// The columns of a table: all rows have two spaces or more between them. A column begins with that
/// gap, which keeps numbers aligned.
fn columns_of(rows: &[Vec<char>]) -> Vec<Range<usize>> {
    let width = rows.iter().map(Vec::len).max().unwrap_or(0);
    let is_blank = |at: usize| rows.iter().all(|row| row.get(at).is_none_or(|c| *c == ' '));
    let mut columns: Vec<Range<usize>> = Vec::new();
    let mut start = 0;
    let mut blank_from = None;
    for at in 0..width {
        if is_blank(at) {
            blank_from.get_or_insert(at);
            continue;
        }
        if let Some(from) = blank_from.take()
            && at - from >= 2
            && from > 0
        {
            columns.push(start..from);
            start = from;
        }
    }
    columns.push(start..width);
    columns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_continue_under_their_description() {
        let text = "  name    words of a text that is long\n";
        assert_eq!(
            folded(text, 22),
            "  name    words of a\n          text that is\n          long\n"
        );
        assert_eq!(folded(text, 80), text);
        assert_eq!(folded("a sentence of words\n\nb\n", 10), "a sentence\nof words\n\nb\n");
        assert_eq!(folded("  - one two three\n", 12), "  - one two\n    three\n");
        assert_eq!(folded("aaaaaaaaaaaaaaa bb\nc", 10), "aaaaaaaaaaaaaaa\nbb\nc");
    }

    #[test]
    fn help_carries_words_into_the_next_line() {
        let text = "  name   words of a text that\n         is long\n  other  words\n";
        let whole = "  name   words of a text\n         that is long\n  other  words\n";
        assert_eq!(reflowed(text, 24), whole);
        assert_eq!(reflowed("one two\nthree four\n\nfive", 6), "one\ntwo\nthree\nfour\n\nfive");
        // A line that fits keeps its end.
        assert_eq!(reflowed("one\ntwo", 20), "one\ntwo");
    }

    #[test]
    fn wide_tables_continue_in_bands() {
        let table = "\
level   tables    bytes    true +
    0        1   340 kB         0
  all       12     1 kB       999
end
";
        let bands = "\
level   tables    bytes
    0        1   340 kB
  all       12     1 kB
level    true +
    0         0
  all       999
end
";
        assert_eq!(folded(table, 26), bands);
        assert_eq!(folded(table, 33), table);
    }

    #[test]
    fn folding_loses_no_word() {
        let words = |text: &str| text.split_whitespace().map(str::to_string).collect::<Vec<_>>();
        let text = "siftdb   has a table\n    of many words,  and\u{2026} gr\u{fc}n ones \nend";
        for width in 1..60 {
            let folded = folded(text, width);
            assert_eq!(words(&folded), words(text), "{width}");
            let fits = |line: &str| line.trim_end().chars().count() <= width.max(25);
            assert!(folded.lines().all(fits), "{width}: {folded}");
        }
    }
}
