//! [`Statements`]: cuts text into statements, as it comes.

/// Text that is being cut into statements. Each ends with a `;` outside of quotes and comments.
#[derive(Debug, Default)]
pub struct Statements {
    text: String,
    /// Where the next statement begins.
    start: usize,
    /// How much of the text was looked at.
    seen: usize,
    within: Within,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Within {
    #[default]
    Statement,
    /// A string or a name, until this quote. A doubled quote ends one and begins the next.
    Quotes(u8),
    LineComment,
    /// Comments nest.
    BlockComment(u32),
}

impl Statements {
    /// Adds a line, with its end.
    pub fn add(&mut self, line: &str) {
        self.text.drain(..self.start);
        self.seen -= self.start;
        self.start = 0;
        self.text.push_str(line);
    }

    /// The next statement. If the text `has_ended`, the last one needs no `;`.
    pub fn next(&mut self, has_ended: bool) -> Option<String> {
        match self.next_complete() {
            None if has_ended => self.rest(),
            complete => complete,
        }
    }

    /// The next statement that has its `;`.
    fn next_complete(&mut self) -> Option<String> {
        while let Some(rest @ [byte, ..]) = self.text.as_bytes().get(self.seen..) {
            let two = rest.get(..2).unwrap_or_default();
            let (within, length) = match (self.within, *byte, two) {
                (Within::Statement, b';', _) => {
                    self.seen += 1;
                    return self.take();
                }
                (Within::Statement, b'\'' | b'"' | b'`', _) => (Within::Quotes(*byte), 1),
                (Within::Quotes(quote), byte, _) if byte == quote => (Within::Statement, 1),
                (Within::Statement, _, b"--") => (Within::LineComment, 2),
                (Within::LineComment, b'\n', _) => (Within::Statement, 1),
                (Within::Statement, _, b"/*") => (Within::BlockComment(1), 2),
                (Within::BlockComment(depth), _, b"/*") => (Within::BlockComment(depth + 1), 2),
                (Within::BlockComment(1), _, b"*/") => (Within::Statement, 2),
                (Within::BlockComment(depth), _, b"*/") => (Within::BlockComment(depth - 1), 2),
                (within, _, _) => (within, 1),
            };
            self.within = within;
            self.seen += length;
        }
        None
    }

    /// What is there without a `;`, unless it is empty.
    fn rest(&mut self) -> Option<String> {
        self.seen = self.text.len();
        self.within = Within::Statement;
        self.take()
    }

    fn take(&mut self) -> Option<String> {
        let statement = self.text.get(self.start..self.seen)?.trim().to_owned();
        self.start = self.seen;
        Some(statement).filter(|statement| !statement.is_empty())
    }
}
