//! Bytes as text and back, counts with their noun, dates.
//!
//! UTF-8 without control characters and backslashes is printed as it is. Other bytes are printed as
//! `\t`, `\n`, `\\` and `\xNN`, which `--escaped` reads back, so every key has one spelling.

use std::io::Write;

/// `1 table`, `2 tables`.
pub fn counted(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// `1 entry`, `2 entries`.
pub fn counted_entries(count: u64) -> String {
    if count == 1 { "1 entry".into() } else { format!("{count} entries") }
}

/// Says how many entries are only in the log, if any, for commands that read tables alone.
pub fn write_log_note(out: &mut dyn Write, log_entries: u64) -> std::io::Result<()> {
    if log_entries == 0 {
        return Ok(());
    }
    let entries = counted_entries(log_entries);
    writeln!(
        out,
        "only in the log, in no table: {entries}; `siftdb flush DIR` writes them to a table"
    )
}

/// Seconds since 1970 as a date and a time of day (UTC), by the proleptic Gregorian calendar.
pub fn date(unix_seconds: u64) -> String {
    let (days, seconds) = (unix_seconds / 86_400, unix_seconds % 86_400);
    // Days since 1 March of the year 0. Years that begin in March have the leap day at their end.
    let days = days + 719_468;
    let (cycle, day) = (days / 146_097, days % 146_097);
    // Leap days of the cycle of 400 years before this day do not count for the year.
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    // From March on, five months have 153 days.
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (year, month) = match month {
        0..10 => (400 * cycle + year, month + 3),
        _ => (400 * cycle + year + 1, month - 9),
    };
    let (hour, minute) = (seconds / 3600, seconds / 60 % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02} UTC")
}

/// `argument` as a word for the shell.
pub fn shell_word(argument: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-:+,@%".contains(&byte);
    if !argument.is_empty() && argument.bytes().all(plain) {
        return argument.into();
    }
    format!("'{}'", argument.replace('\'', "'\\''"))
}

/// The option that names a keyspace in a command, after a space; nothing for `default`.
pub fn keyspace_option(name: &str) -> String {
    match name {
        "default" => String::new(),
        name => format!(" --keyspace {}", shell_word(name)),
    }
}

/// The spelling of `bytes`.
pub fn escaped(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(|c| c.is_control() || c == '\\') => text.into(),
        Ok(text) => text
            .chars()
            .map(|c| match c.is_control() || c == '\\' {
                true => c.encode_utf8(&mut [0; 4]).bytes().map(spelled).collect(),
                false => c.to_string(),
            })
            .collect(),
        Err(_) => bytes.iter().copied().map(spelled).collect(),
    }
}

fn spelled(byte: u8) -> String {
    match byte {
        b'\t' => "\\t".into(),
        b'\n' => "\\n".into(),
        b'\\' => "\\\\".into(),
        b' '..=b'~' => (byte as char).into(),
        _ => format!("\\x{byte:02x}"),
    }
}

/// The bytes of a spelling.
pub fn unescaped(spelled: &[u8]) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::with_capacity(spelled.len());
    let mut rest = spelled;
    while let Some((&first, tail)) = rest.split_first() {
        rest = tail;
        if first != b'\\' {
            bytes.push(first);
            continue;
        }
        let (byte, used) = match *rest {
            [b't', ..] => (Some(b'\t'), 1),
            [b'n', ..] => (Some(b'\n'), 1),
            [b'\\', ..] => (Some(b'\\'), 1),
            [b'x', high, low, ..] => (hex(high).zip(hex(low)).map(|(h, l)| 16 * h + l), 3),
            _ => (None, 0),
        };
        let Some(byte) = byte else {
            // Without the rest, which may be a large value.
            let bytes = if rest.starts_with(b"x") { 3 } else { 1 };
            let escape = rest.get(..bytes).unwrap_or(rest).escape_ascii();
            return Err(format!("an escape that is none of \\t \\n \\\\ \\xNN: \\{escape}"));
        };
        bytes.push(byte);
        rest = rest.get(used..).unwrap_or_default();
    }
    Ok(bytes)
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shell_words_are_quoted_when_needed() {
        let cases = [("user:1", "user:1"), ("", "''"), ("a b", "'a b'"), ("it's", "'it'\\''s'")];
        for (argument, word) in cases {
            assert_eq!(shell_word(argument), word);
        }
        assert_eq!((counted(0, "table"), counted(1, "key")), ("0 tables".into(), "1 key".into()));
    }

    #[test]
    fn dates_follow_the_gregorian_calendar() {
        assert_eq!(date(0), "1970-01-01 00:00 UTC");
        assert_eq!(date(951_782_399), "2000-02-28 23:59 UTC");
        assert_eq!(date(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(date(4_102_444_800), "2100-01-01 00:00 UTC");
        assert_eq!(date(1_735_689_599), "2024-12-31 23:59 UTC");
        assert!(date(u64::MAX).ends_with("UTC"));
    }

    #[test]
    fn escaped_bytes_round_trip() {
        let cases: [(&[u8], &str); 6] = [
            (b"plain key", "plain key"),
            ("gr\u{fc}n".as_bytes(), "gr\u{fc}n"),
            (b"tab\tline\n", "tab\\tline\\n"),
            (b"back\\slash", "back\\\\slash"),
            (b"\xff\x00A", "\\xff\\x00A"),
            ("\u{85}".as_bytes(), "\\xc2\\x85"),
        ];
        for (bytes, spelled) in cases {
            assert_eq!(escaped(bytes), spelled);
            assert_eq!(unescaped(spelled.as_bytes()).unwrap(), bytes);
        }
        for byte in 0..=255u8 {
            assert_eq!(unescaped(escaped(&[byte]).as_bytes()).unwrap(), [byte]);
        }
        for wrong in ["\\", "\\q", "\\x", "\\x1", "\\xg0"] {
            let refused = unescaped(format!("\\ta{wrong}").as_bytes()).unwrap_err();
            assert!(refused.ends_with(&format!(": {wrong}")), "{refused}");
        }
        let long = unescaped(&[&b"\\q"[..], &[0; 10_000]].concat()).unwrap_err();
        assert!(long.ends_with(": \\q"), "{} bytes", long.len());
    }
}
